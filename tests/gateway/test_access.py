"""Who may use the server: API keys and web pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core_engine import KeyConfig
from core_engine.text import TextModel
from gateway.auth import ApiKeys
from gateway.cors import CorsRule
from gateway.errors import ApiError
from tests.gateway.raw import head, read_all, statuses
from tests.gateway.running import CHAT, RunningGateway, running_gateway

KEY = "sk-first"
ELSEWHERE, HERE = "https://chat.example.com", "http://localhost:3000"


@pytest.fixture(scope="module")
def guarded(text_model: TextModel) -> Iterator[RunningGateway]:
    with running_gateway(
        text_model,
        keys=(
            KeyConfig.plain(KEY),
            KeyConfig.plain("sk-second"),
        ),
    ) as running:
        yield running


def with_key(key: str = KEY, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", **headers}


@pytest.mark.parametrize("path", ["/v1/models", "/version", "/metrics", "/nothing", "//v1/models", "/v1/models/"])
def test_without_a_key_nothing_is_told(guarded: RunningGateway, path: str) -> None:
    with guarded.connect() as connection:
        connection.sendall(head("GET", path, connection="close"))
        raw = read_all(connection)
    assert statuses(raw) == [401]
    assert b'"code":"invalid_api_key"' in raw
    assert b"www-authenticate: Bearer" in raw


@pytest.mark.parametrize("path", ["/health", "/ready", "/health/", "//ready"])
def test_probes_need_no_key(guarded: RunningGateway, path: str) -> None:
    with guarded.connect() as connection:
        connection.sendall(head("GET", path, connection="close"))
        assert statuses(read_all(connection)) == [200]


@pytest.mark.parametrize("header", ["Bearer sk-first", "bearer sk-second", "BEARER  sk-first"])
def test_any_key_opens(guarded: RunningGateway, header: str) -> None:
    assert guarded.http.get("/v1/models", headers={"authorization": header}).status_code == 200


@pytest.mark.parametrize("header", ["Bearer sk-firs", "Bearer sk-first2", "Basic sk-first", "sk-first", "Bearer", ""])
def test_nothing_else_does(guarded: RunningGateway, header: str) -> None:
    response = guarded.http.get("/v1/models", headers={"authorization": header})
    assert response.status_code == 401
    assert KEY not in response.text


def test_a_key_is_needed_before_the_body_is_read(guarded: RunningGateway) -> None:
    assert guarded.http.post(CHAT, content=b"{").status_code == 401
    assert not guarded.engine.submitted


def test_metrics_can_be_public(text_model: TextModel) -> None:
    with running_gateway(text_model, keys=(KeyConfig.plain(KEY),), public_metrics=True) as running:
        assert running.http.get("/metrics").status_code == 200
        assert running.http.get("/version").status_code == 401


def test_no_keys_mean_no_check() -> None:
    ApiKeys(()).check("/v1/models", {})
    with pytest.raises(ApiError):
        ApiKeys(("k",)).check("/v1/models", {})


def preflight(running: RunningGateway, origin: str) -> tuple[int, dict[str, str]]:
    response = running.http.options(
        CHAT,
        headers={
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,x-stainless-os",
        },
    )
    return response.status_code, dict(response.headers)


def test_with_keys_any_page_may_ask(guarded: RunningGateway) -> None:
    status, headers = preflight(guarded, ELSEWHERE)
    assert status == 204
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in headers
    answer = guarded.http.get("/v1/models", headers=with_key(origin=ELSEWHERE))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-expose-headers"] == "*"


def test_errors_can_be_read_by_pages(guarded: RunningGateway) -> None:
    for path in ("/v1/models", "/nothing"):
        answer = guarded.http.get(path, headers={"origin": ELSEWHERE})
        assert answer.status_code == 401
        assert answer.headers["access-control-allow-origin"] == "*"
    stream = guarded.http.post(CHAT, json={}, headers=with_key(origin=ELSEWHERE))
    assert stream.status_code == 400
    assert stream.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("origin", [HERE, "http://127.0.0.1:8080", "https://[::1]:1", "http://ui.localhost"])
def test_without_keys_pages_of_this_machine_may_ask(server: RunningGateway, origin: str) -> None:
    status, headers = preflight(server, origin)
    assert status == 204
    assert headers["access-control-allow-origin"] == origin
    assert headers["vary"] == "Origin"
    answer = server.http.get("/v1/models", headers={"origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [ELSEWHERE, "null", "http://localhost.evil.com", "http://127.0.0.1.evil.com", "file://", "http://[::1", "x"],
)
def test_without_keys_no_other_page_may(server: RunningGateway, origin: str) -> None:
    status, headers = preflight(server, origin)
    assert status == 403
    assert "access-control-allow-origin" not in headers
    # A page can send a simple request without asking first, so that isn't served either.
    answer = server.http.post(CHAT, content=b"{}", headers={"origin": origin, "content-type": "application/json"})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"


def test_programs_send_no_origin_and_get_no_headers(server: RunningGateway) -> None:
    assert not any(name.startswith("access-control") for name in server.http.get("/v1/models").headers)


def test_the_operator_can_name_origins(text_model: TextModel) -> None:
    with running_gateway(text_model, keys=(KeyConfig.plain(KEY),), cors_origins=(ELSEWHERE + "/",)) as running:
        assert preflight(running, ELSEWHERE)[1]["access-control-allow-origin"] == ELSEWHERE
        assert preflight(running, HERE)[0] == 403


def test_a_star_allows_every_origin_even_without_keys() -> None:
    assert CorsRule(("*",), with_keys=False).allows(ELSEWHERE)
    assert not CorsRule((), with_keys=True).allows(ELSEWHERE)
