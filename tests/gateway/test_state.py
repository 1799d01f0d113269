"""What the server says of itself while it isn't simply ready."""

from __future__ import annotations

import pytest

from tests.gateway.running import RunningGateway

REFUSING_PATHS = ("/v1/models", "/v1/models/tiny", "/ready")


@pytest.mark.parametrize(
    ("state", "retry", "health"),
    [("starting", True, 200), ("restarting", True, 200), ("failed", False, 503), ("stopped", False, 200)],
)
def test_an_engine_that_does_not_serve_is_a_503(server: RunningGateway, state: str, retry: bool, health: int) -> None:
    server.engine.state = state
    answers = [server.http.get(path) for path in REFUSING_PATHS]
    answers += [server.chat(), server.chat(stream=True), server.complete(), server.post("/tokenize", prompt="x")]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == f"engine_{state}"
        assert ("retry-after" in answer.headers) is retry
        assert ("retry-after-ms" in answer.headers) is retry
        assert (answer.headers.get("x-should-retry") == "false") is not retry
    assert server.http.get("/health").status_code == health
    assert server.http.get("/health").json() == {"status": state, "models": {"tiny": state}}
    assert not server.engine.submitted


def test_a_draining_server_takes_nothing_new(server: RunningGateway) -> None:
    server.gateway.draining = True
    for answer in (server.http.get("/ready"), server.chat()):
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "draining"
    assert server.http.get("/health").json()["status"] == "draining"
    assert server.http.get("/version").status_code == 200


def test_a_ready_engine_needs_its_text_half(server: RunningGateway) -> None:
    server.model.text_model = None
    try:
        assert server.chat().json()["error"]["code"] == "engine_starting"
    finally:
        server.model.text_model = server.text_model
    assert server.http.get("/ready").json() == {"status": "ready"}


def test_bodies_are_not_read_for_nothing(server: RunningGateway) -> None:
    server.engine.state = "starting"
    assert server.http.post("/v1/chat/completions", content=b"{").status_code == 503
