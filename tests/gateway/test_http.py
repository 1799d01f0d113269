"""HTTP manners: methods, paths, identity, limits, connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from core_engine.text import TextModel
from gateway.wire import HARD_LIMIT_FACTOR
from tests.gateway.raw import envelope, head, json_post, read_all, read_one, statuses
from tests.gateway.running import CHAT, RunningGateway, running_gateway

HELLO = [{"role": "user", "content": "Hello"}]
GET_PATHS = ["/v1/models", "/v1/models/tiny", "/health", "/ready", "/version", "/metrics", "/models"]


@pytest.fixture(scope="module")
def strict(text_model: TextModel) -> Iterator[RunningGateway]:
    """A gateway with small limits."""
    with running_gateway(
        text_model,
        max_body_bytes=100_000,
        max_header_bytes=8192,
        body_timeout_seconds=0.2,
        header_timeout_seconds=0.2,
    ) as running:
        yield running


@pytest.mark.parametrize("path", GET_PATHS)
def test_get_and_head_agree(server: RunningGateway, path: str) -> None:
    full, probe = server.http.get(path), server.http.head(path)
    assert full.status_code == probe.status_code == 200
    assert full.content
    assert probe.content == b""
    assert probe.headers["content-type"] == full.headers["content-type"]
    assert probe.headers["x-request-id"]


def test_a_connection_survives_a_head(server: RunningGateway) -> None:
    with server.connect() as connection:
        connection.sendall(head("HEAD", "/v1/models") + head("GET", "/health", connection="close"))
        assert statuses(read_all(connection)) == [200, 200]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/chat/completions",
        "/chat/completions/",
        "//v1//chat/completions",
        "/v1/chat/completions/",
    ],
)
def test_paths_have_aliases(server: RunningGateway, path: str) -> None:
    assert server.post(path, messages=HELLO).status_code == 200


@pytest.mark.parametrize("path", ["/v1/completions", "/completions"])
def test_completions_have_an_alias(server: RunningGateway, path: str) -> None:
    assert server.post(path, prompt="Hello").status_code == 200


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize", "/tokenize/"])
def test_tokens_have_aliases(server: RunningGateway, path: str) -> None:
    assert server.post(path, prompt="Hello").status_code == 200


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def test_unknown_paths_are_404(server: RunningGateway) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/v1/chat", "/v1/chat/completions/x", "/docs/x", "/schema"):
        assert error_of(server.http.get(path), 404)["type"] == "invalid_request_error"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_a_wrong_method_is_told_the_right_one(server: RunningGateway, method: str) -> None:
    response = server.http.request(method, CHAT)
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]
    if method != "HEAD":
        error_of(response, 405)


def test_what_can_be_got_can_be_probed(server: RunningGateway) -> None:
    response = server.http.post("/v1/models", json={})
    error_of(response, 405)
    assert {"GET", "HEAD"} <= set(response.headers["allow"].split(", "))


def test_a_plain_options_request_lists_methods(server: RunningGateway) -> None:
    response = server.http.options(CHAT)
    assert response.status_code == 204
    assert "POST" in response.headers["allow"]


@pytest.mark.parametrize(
    ("offered", "kept"), [("abc-1.2_3:x", True), ("a" * 64, True), ("a" * 65, False), ("a b", False)]
)
def test_a_safe_request_id_is_echoed(server: RunningGateway, offered: str, kept: bool) -> None:
    for path in ("/health", "/nothing"):
        given = server.http.get(path, headers={"x-request-id": offered}).headers["x-request-id"]
        assert (given == offered) is kept
        assert given


def test_request_ids_differ(server: RunningGateway) -> None:
    assert len({server.http.get("/health").headers["x-request-id"] for _ in range(5)}) == 5


def test_a_large_body_is_413(strict: RunningGateway) -> None:
    response = strict.chat(user="x" * 200_000)
    assert error_of(response, 413)["code"] == "body_too_large"
    assert strict.chat().status_code == 200


def test_a_chunked_body_is_bounded_too(strict: RunningGateway) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 10_000

    response = strict.http.post(CHAT, content=chunks(), headers={"content-type": "application/json"})
    assert error_of(response, 413)["code"] == "body_too_large"


def test_a_body_of_another_kind_is_415(server: RunningGateway) -> None:
    assert error_of(server.http.post(CHAT, data={"model": "tiny"}), 415)["code"] == "unsupported_media_type"
    compressed = server.http.post(
        CHAT, content=b"{}", headers={"content-encoding": "gzip", "content-type": "application/json"}
    )
    error_of(compressed, 415)


def test_large_headers_are_431(strict: RunningGateway) -> None:
    response = strict.http.get("/health", headers={"x-long": "x" * 10_000})
    assert error_of(response, 431)["code"] == "headers_too_large"
    assert strict.http.get("/health?" + "x" * 10_000).status_code == 431


def test_headers_without_end_are_cut_off(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"x" * 40_000)
        raw = read_all(connection)
    assert statuses(raw) == [431]
    assert envelope(raw)["code"] == "headers_too_large"


def test_a_slow_head_is_408(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: local")
        raw = read_all(connection)
    assert statuses(raw) == [408]
    assert envelope(raw)["code"] == "request_timeout"


def test_a_slow_head_on_a_used_connection_is_408(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        connection.sendall(head("GET", "/health"))
        assert connection.recv(65536)
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert statuses(read_all(connection)) == [408]


def test_the_rest_of_a_body_that_has_its_answer_is_no_head(strict: RunningGateway) -> None:
    size = 2 * strict.settings.max_header_bytes * HARD_LIMIT_FACTOR
    with strict.connect() as connection:
        connection.sendall(head("POST", "/nothing", content_length=str(size)) + b"x")
        assert statuses(read_one(connection)) == [404]
        connection.sendall(b"x" * (size - 1) + head("GET", "/health", connection="close"))
        assert statuses(read_all(connection)) == [200]


def test_the_rest_of_a_body_that_has_its_answer_must_come_in_time(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        connection.sendall(head("POST", "/nothing", content_length="1000") + b"x")
        assert statuses(read_one(connection)) == [404]
        connection.sendall(b"x")
        assert read_all(connection) == b""


def test_a_head_that_begins_behind_a_body_must_come_in_time(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        connection.sendall(head("POST", "/nothing", content_length="2") + b"x")
        assert statuses(read_one(connection)) == [404]
        connection.sendall(b"x" + b"GET /health HTTP/1.1\r\n")
        assert statuses(read_all(connection)) == [408]


def test_an_unused_connection_is_closed_without_a_word(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        assert read_all(connection) == b""


def test_a_slow_body_is_408(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        connection.sendall(head("POST", CHAT, content_type="application/json", content_length="100") + b"{")
        raw = read_all(connection)
    assert statuses(raw) == [408]
    assert envelope(raw)["code"] == "request_timeout"


def test_what_is_not_http_is_400(server: RunningGateway) -> None:
    with server.connect() as connection:
        connection.sendall(b"EHLO mail.example\r\n\r\n")
        raw = read_all(connection)
    assert statuses(raw) == [400]
    assert envelope(raw)["code"] == "invalid_http"


def test_pipelined_requests_are_answered_in_order(server: RunningGateway) -> None:
    with server.connect() as connection:
        connection.sendall(json_post(CHAT, messages=HELLO) + head("GET", "/nothing", connection="close"))
        assert statuses(read_all(connection)) == [200, 404]


def test_expect_continue_is_answered(server: RunningGateway) -> None:
    body = json.dumps({"model": "tiny", "messages": HELLO}).encode()
    fields = {"content_type": "application/json", "content_length": str(len(body)), "connection": "close"}
    with server.connect() as connection:
        connection.sendall(head("POST", CHAT, expect="100-continue", **fields))
        assert statuses(connection.recv(65536)) == [100]
        connection.sendall(body)
        assert statuses(read_all(connection)) == [200]


def test_a_client_that_asks_before_sending_too_much_is_told_no(strict: RunningGateway) -> None:
    with strict.connect() as connection:
        fields = {"content_type": "application/json", "content_length": "1000000"}
        connection.sendall(head("POST", CHAT, expect="100-continue", **fields))
        assert statuses(read_all(connection)) == [413]


def test_half_a_connection_is_no_reason_to_hang(server: RunningGateway) -> None:
    with server.connect() as connection:
        connection.sendall(json_post(CHAT, messages=HELLO))
        connection.shutdown(1)
        assert statuses(read_all(connection)) in ([], [200])


def test_an_error_of_our_own_is_a_500_without_a_trace(server: RunningGateway, caplog: pytest.LogCaptureFixture) -> None:
    server.engine.script.failure = ZeroDivisionError("in /usr/lib/secret.py")
    error = error_of(server.chat(), 500)
    assert error["code"] == "internal_error"
    assert "secret" not in error["message"]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("body", [b"-1e\r\n", b"0x1e\r\n", b"fffffffffffffffff\r\n", b"2\r\n{}X"])
def test_a_body_that_is_not_http_is_400(server: RunningGateway, body: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(head("POST", CHAT, content_type="application/json", transfer_encoding="chunked"))
        connection.sendall(body)
        raw = read_all(connection)
    assert statuses(raw) == [400]
    assert envelope(raw)["code"] == "invalid_http"
    assert not server.engine.running


def test_what_is_not_http_lands_in_no_other_answer(server: RunningGateway) -> None:
    with server.connect() as connection:
        connection.sendall(json_post(CHAT, messages=HELLO) + head("POST", CHAT, transfer_encoding="chunked") + b"X")
        raw = read_all(connection)
    assert statuses(raw) in ([], [200])


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_left_alone(server: RunningGateway, protocol: str) -> None:
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\n\r\n".encode()
    request = json_post(CHAT, messages=[{"role": "user", "content": "\r\nupgrade: no"}])
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(request.replace(b"\r\n\r\n", b"\r\n" + offer, 1))
            assert statuses(read_one(connection)) == [200]
    said = server.text_model.decode(server.engine.submitted[-1].prompt_token_ids)
    assert "upgrade: no" in said


@pytest.mark.parametrize("hosts", [b"", b"host: a\r\nhost: b\r\n"])
def test_a_request_has_one_host(server: RunningGateway, hosts: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n")
        raw = read_all(connection)
    assert statuses(raw) == [400]
    assert envelope(raw)["code"] == "invalid_http"
