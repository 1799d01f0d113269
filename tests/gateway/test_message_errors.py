"""Errors of `/v1/messages` in Anthropic's envelope, wherever they arise, as its SDK raises them."""

from __future__ import annotations

import time

import anthropic
import pytest

from core_engine import EngineDied, EngineUnavailable, KeyConfig, Overloaded
from core_engine.text import TextModel
from tests.gateway.anthropic_api import COUNT, MESSAGES, ask, asked, client_of, error, events_of
from tests.gateway.fake_engine import MODEL
from tests.gateway.running import RunningGateway, running_gateway


def test_a_key_may_come_in_either_header(text_model: TextModel) -> None:
    with running_gateway(text_model, keys=(KeyConfig.plain("sk-a"),)) as server:
        for headers in ({"x-api-key": "sk-a"}, {"authorization": "Bearer sk-a", "x-api-key": "none"}):
            answer = server.http.post(MESSAGES, json=asked(), headers={**headers, "anthropic-version": "2023-06-01"})
            assert answer.status_code == 200
        assert server.http.get("/v1/models", headers={"x-api-key": "sk-a"}).status_code == 200
        for headers in (
            {},
            {"x-api-key": "sk-b"},
            {"x-api-key": ""},
            {"authorization": "Bearer b", "x-api-key": "sk-a"},
        ):
            refused = error(server.http.post(MESSAGES, json=asked(), headers=headers), 401)
            assert refused["type"] == "authentication_error"
        with client_of(server, "sk-b") as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(**asked())
        with client_of(server, "sk-a") as client:
            assert client.messages.create(**asked()).content


def test_a_key_in_the_other_header_names_the_tenant(text_model: TextModel) -> None:
    keys = (KeyConfig(key="sk-a", tenant="acme", class_name="interactive"),)
    with running_gateway(text_model, keys=keys) as server:
        server.http.post(MESSAGES, json=asked(), headers={"x-api-key": "sk-a"})
        (request,) = server.engine.submitted
        assert (request.tenant, request.class_name) == ("acme", "interactive")


def test_the_sdk_raises_what_fits(server: RunningGateway) -> None:
    with client_of(server) as client:
        with pytest.raises(anthropic.NotFoundError) as unknown:
            client.messages.create(**asked(model="other"))
        assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(**asked(max_tokens=5000))
        server.engine.script = server.saying("Hi.", refusal=Overloaded("queue_full", "too many wait", 2.0))
        with pytest.raises(anthropic.RateLimitError) as busy:
            client.messages.create(**asked())
        assert busy.value.response.headers["retry-after"] == "2"
        assert busy.value.request_id
        server.engine.script = server.saying("Hi.", refusal=EngineUnavailable("gone"))
        with pytest.raises(anthropic.InternalServerError) as gone:
            client.messages.create(**asked())
        assert gone.value.status_code == 529
        assert gone.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
        server.engine.script = server.saying("Hi.")
        with pytest.raises(anthropic.NotFoundError):
            client.messages.count_tokens(model="other", messages=[{"role": "user", "content": "Hello"}])


def test_an_engine_that_dies_ends_the_stream_with_an_error(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two three", failure=EngineDied("gone"), failure_after=2)
    last = events_of(server)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
    assert last["request_id"]
    with client_of(server) as client, client.messages.stream(**asked()) as stream:
        with pytest.raises(anthropic.APIStatusError) as raised:
            stream.until_done()
        assert raised.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]


def test_a_request_has_one_id_in_header_and_body(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two", failure=EngineDied("gone"), failure_after=1)
    answer = server.http.post(MESSAGES, json=asked(stream=True), headers={"x-request-id": "mine"})
    assert answer.headers["request-id"] == "mine"
    assert '"request_id":"mine"' in answer.text
    answer = server.http.post(MESSAGES, json=asked(model="other"), headers={"x-request-id": "mine"})
    assert answer.json()["request_id"] == "mine"


@pytest.mark.parametrize("path", [MESSAGES, "/messages", "//v1/messages/", COUNT])
def test_every_refusal_has_the_envelope(server: RunningGateway, path: str) -> None:
    assert error(server.http.post(path, content=b"{"), 400)["type"] == "invalid_request_error"
    assert error(server.http.post(path, content=b"x" * (11 * 2**20)), 413)["type"] == "request_too_large"
    assert error(server.http.get(path), 405)["type"] == "invalid_request_error"
    assert error(server.http.post(path, headers={"origin": "https://x.example"}), 403)["type"] == "permission_error"
    server.gateway.draining = True
    assert error(server.http.post(path, json=asked()), 529)["type"] == "overloaded_error"


def test_paths_below_have_it_too_and_no_other_path(server: RunningGateway) -> None:
    assert error(server.http.post("/v1/messages/batches", json={}), 404)["type"] == "not_found_error"
    for path in ("/v1/messagesx", "/v1/chat/completions"):
        answer = server.http.post(path, content=b"{")
        assert "type" not in answer.json()
        assert "request-id" not in answer.headers


def test_an_answer_that_takes_long_pings(text_model: TextModel) -> None:
    with running_gateway(text_model, heartbeat_seconds=0.01) as server:
        server.engine.script = server.saying("Hi.", pause_seconds=0.2, together=10)
        assert ask(server, stream=True).text.count("event: ping\n") > 2


def test_a_client_that_leaves_frees_the_engine(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two three", hold_after=1)
    with client_of(server) as client:
        stream = client.messages.create(**asked(stream=True, model=MODEL))
        next(iter(stream))
        stream.close()
    for _ in range(500):
        if server.engine.cancelled:
            break
        time.sleep(0.01)
    assert server.engine.cancelled
