"""What telemetry hears of requests: each ends once, well or with a reason."""

from __future__ import annotations

import re

import pytest

from core_engine import EngineDied, Overloaded
from tests.gateway.raw import eventually, json_post
from tests.gateway.running import CHAT, RunningGateway

HELLO = [{"role": "user", "content": "Hello"}]
DURATIONS = re.compile(r"^gen_ai_server_request_duration_seconds_count\{(.*)\} (\S+)$", re.MULTILINE)


def ended(server: RunningGateway) -> dict[tuple[str, str], float]:
    """Requests that ended, by operation and error type."""
    found: dict[tuple[str, str], float] = {}
    for labels, value in DURATIONS.findall(server.http.get("/metrics").text):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        key = (pairs["gen_ai_operation_name"], pairs.get("error_type", ""))
        found[key] = found.get(key, 0) + float(value)
    return found


def gained(before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_its_span(server: RunningGateway, stream: bool) -> None:
    before = ended(server)
    server.chat(stream=stream)
    server.complete(stream=stream, prompt=["a", "b"])
    assert eventually(lambda: gained(before, ended(server)) == {("chat", ""): 1, ("text_completion", ""): 1})


@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_a_type(server: RunningGateway, stream: bool) -> None:
    before = ended(server)
    server.chat(stream=stream, functions=[{"name": "f"}])
    server.engine.script.refusal = Overloaded("no", "queue_full", 1)
    server.chat(stream=stream)
    server.engine.script = server.saying("one two", failure=EngineDied("gone"), failure_after=1)
    server.chat(stream=stream)
    types = {("chat", "unsupported_parameter"): 1, ("chat", "queue_full"): 1, ("chat", "engine_died"): 1}
    assert eventually(lambda: gained(before, ended(server)) == types)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_counted(server: RunningGateway, stream: bool) -> None:
    before = ended(server)
    server.engine.script = server.saying("one two three", hold_after=1)
    with server.connect() as connection:
        connection.sendall(json_post(CHAT, messages=HELLO, stream=stream))
        assert eventually(lambda: bool(server.engine.running))
    assert eventually(lambda: gained(before, ended(server)) == {("chat", "client_disconnected"): 1})


def test_made_up_models_are_not_counted(server: RunningGateway) -> None:
    before = ended(server)
    assert server.chat(model="made-up").status_code == 404
    assert gained(before, ended(server)) == {}
