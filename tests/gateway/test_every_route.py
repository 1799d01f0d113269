"""What holds on every route of the application, found by walking it: a new route can't be forgotten."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from litestar import Litestar

from core_engine import KeyConfig
from core_engine.text import TextModel
from gateway.auth import KEYLESS_PATHS
from gateway.edge import Edge
from gateway.openapi.document import describe
from tests.gateway.described import Described
from tests.gateway.raw import envelope, head, read_all, statuses
from tests.gateway.running import RunningGateway, running_gateway

KEY, ADMIN_KEY = "sk-one", "sk-admin"
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}
PAGE = "https://chat.example.com"

# Everything else has two paths, with /v1 and without.
WITH_ONE_PATH = re.compile(r"^/(health|ready|metrics|openapi\.json|docs|admin/.*)$")
# Everything else that is posted has a body.
WITHOUT_BODY = re.compile(r"/cancel$")
# Errors of these have Anthropic's envelope, which knows no code.
MESSAGES = re.compile(r"^(/v1)?/messages(/|$)")


@dataclass(frozen=True)
class Route:
    """A path with its parameters filled in, and what it answers to."""

    pattern: str
    path: str
    methods: frozenset[str]

    @property
    def reads_body(self) -> bool:
        return "POST" in self.methods and not WITHOUT_BODY.search(self.path)


class Guarded:
    """A gateway that has every route, and its callers."""

    def __init__(self, running: RunningGateway) -> None:
        self.running = running
        self.routes = routes_of(running.app)
        self._described = Described(describe(with_admin=True))

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """With the key that the path wants; whatever comes is what the OpenAPI document says."""
        headers = {"authorization": f"Bearer {key_of(path)}", **options.pop("headers", {})}
        response = self.running.http.request(method, path, headers=headers, **options)
        self._described.check(response)
        return response

    def posted(self) -> list[Route]:
        return [route for route in self.routes if route.reads_body]


def key_of(path: str) -> str:
    return ADMIN_KEY if re.match(r"^/+admin/", path) else KEY


def routes_of(app: object, value: str = "unknown") -> list[Route]:
    """Every route, with this value for each of its parameters."""
    assert isinstance(app, Edge)
    assert isinstance(app._app, Litestar)
    return [
        Route(route.path, re.sub(r"\{[^}]*\}", value, route.path), frozenset(route.methods) - {"OPTIONS"})
        for route in app._app.routes
    ]


@pytest.fixture(scope="module")
def guarded(text_model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with running_gateway(
        text_model,
        keys=(KeyConfig.plain(KEY),),
        admin_key=ADMIN_KEY,
        data_dir=str(tmp_path_factory.mktemp("data")),
        max_body_bytes=50_000,
        max_file_size_bytes=50_000,
        max_header_bytes=8192,
        body_timeout_seconds=0.3,
    ) as running:
        yield Guarded(running)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The envelope of an error, and nothing else."""
    assert response.headers["content-type"] == "application/json", response.request.url
    body = response.json()
    if MESSAGES.match(response.request.url.path):
        assert set(body) == {"type", "error", "request_id"}
        assert set(body["error"]) == {"message", "type"}
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return dict(body["error"])


def has_code(response: httpx.Response, code: str) -> bool:
    """Whether an error has this code, where its envelope has room for one."""
    return bool(error_of(response).get("code", code) == code)


def is_harmless(response: httpx.Response) -> bool:
    """Whether it was the client's fault, or the fake engine's, which has nothing to tell operators."""
    error_of(response)
    status = response.status_code
    return 400 <= status < 500 or (status == 503 and has_code(response, "engine_unavailable"))


def agree(response: httpx.Response, other: httpx.Response) -> bool:
    """Whether two answers differ in nothing but what is of the moment."""
    kind = "content-type"
    return (response.status_code, response.headers.get(kind)) == (other.status_code, other.headers.get(kind))


def test_the_walk_finds_routes(guarded: Guarded) -> None:
    paths = {route.pattern for route in guarded.routes}
    assert {"/v1/chat/completions", "/v1/files/{file_id:str}", "/admin/models", "/health"} <= paths
    assert all(route.methods <= METHODS for route in guarded.routes)


def test_paths_come_with_the_prefix_and_without(guarded: Guarded) -> None:
    known = {route.pattern: route.methods for route in guarded.routes if not WITH_ONE_PATH.match(route.pattern)}
    twins = {p.removeprefix("/v1") if p.startswith("/v1/") else f"/v1{p}": methods for p, methods in known.items()}
    assert known == twins


def test_a_key_is_needed_on_every_path(guarded: Guarded) -> None:
    for route in guarded.routes:
        for method in route.methods:
            wrong = KEY if key_of(route.path) == ADMIN_KEY else ADMIN_KEY
            for headers in ({}, {"authorization": f"Bearer {wrong}"}):
                response = guarded.running.http.request(method, route.path, headers=headers)
                if route.path in KEYLESS_PATHS:
                    assert response.status_code == 200
                    continue
                assert response.status_code == 401, route
                assert response.headers["www-authenticate"] == "Bearer"
                assert has_code(response, "invalid_api_key")


def test_a_wrong_method_is_told_the_right_ones(guarded: Guarded) -> None:
    for route in guarded.routes:
        for method in METHODS - route.methods:
            response = guarded.ask(method, route.path, content=b"{}")
            assert response.status_code == 405, (method, route)
            allowed = set(response.headers["allow"].split(", "))
            assert allowed - {"HEAD", "OPTIONS"} == route.methods
            assert ("HEAD" in allowed) == ("GET" in route.methods)
            error_of(response)


def test_what_can_be_got_can_be_probed(guarded: Guarded) -> None:
    for route in guarded.routes:
        answer, probe = guarded.ask("GET", route.path), guarded.ask("HEAD", route.path)
        assert agree(answer, probe), route
        assert probe.content == b""
        assert (probe.status_code == 405) == ("GET" not in route.methods)


def test_slashes_make_no_difference(guarded: Guarded) -> None:
    for route in guarded.routes:
        for method in route.methods:
            plain = guarded.ask(method, route.path)
            for path in (f"{route.path}/", "/" + route.path[1:].replace("/", "//")):
                assert agree(guarded.ask(method, path), plain), (method, path)


def test_requests_keep_their_ids(guarded: Guarded) -> None:
    for route in guarded.routes:
        for method in METHODS:
            kept = guarded.ask(method, route.path, headers={"x-request-id": "mine-1"})
            replaced = guarded.ask(method, route.path, headers={"x-request-id": "not mine"})
            assert kept.headers.get_list("x-request-id") == ["mine-1"]
            assert replaced.headers["x-request-id"] not in {"", "not mine"}


def test_pages_may_ask_before_they_have_a_key(guarded: Guarded) -> None:
    for route in guarded.routes:
        for method in route.methods:
            wanted = {"access-control-request-method": method, "access-control-request-headers": "authorization,x-a"}
            leave = guarded.running.http.options(route.path, headers={"origin": PAGE, **wanted})
            assert leave.status_code == 204, route
            assert leave.headers["access-control-allow-origin"] == "*"
            assert leave.headers["access-control-allow-headers"] == "authorization,x-a"
            assert method in leave.headers["access-control-allow-methods"].split(", ")
            assert leave.headers["x-request-id"]
            refused = guarded.running.http.request(method, route.path, headers={"origin": PAGE})
            assert refused.headers["access-control-allow-origin"] == "*"
            assert refused.headers["access-control-expose-headers"] == "*"


def test_large_headers_are_431(guarded: Guarded) -> None:
    for route in guarded.routes:
        response = guarded.ask(min(route.methods), route.path, headers={"x-long": "x" * 10_000})
        assert response.status_code == 431
        assert has_code(response, "headers_too_large")


@pytest.mark.parametrize("value", ["%00", "%ff", "%0d%0aset-cookie:%20a", "..%2f..%2fetc%2fpasswd", "x" * 5000, "🚌"])
def test_hostile_parameters_of_paths_are_harmless(guarded: Guarded, value: str) -> None:
    for route in routes_of(guarded.running.app, value):
        if "{" not in route.pattern:
            continue
        for method in route.methods:
            response = guarded.ask(method, route.path)
            assert is_harmless(response), (method, route.pattern)
            assert "set-cookie" not in response.headers


@pytest.mark.parametrize("query", ["after=%ff", "after=%00", "limit=%ff", "limit=-1", "order=%00", "model=%00", "&&=&"])
def test_hostile_queries_are_harmless(guarded: Guarded, query: str) -> None:
    for route in guarded.routes:
        for method in route.methods:
            response = guarded.ask(method, f"{route.path}?{query}")
            assert response.status_code == 200 or is_harmless(response), (method, route)


def brotli_of_nothing(content: bytes) -> bytes:
    """A valid stream of brotli, which is as far as anybody gets with it."""
    return b"\x06"


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli_of_nothing), ("gzip, identity", gzip.compress)],
)
def test_compressed_bodies_are_refused(guarded: Guarded, encoding: str, compress: Callable[[bytes], bytes]) -> None:
    body = compress(json.dumps({"model": "tiny"}).encode())
    for route in guarded.posted():
        for kind in ("application/json", "multipart/form-data; boundary=b"):
            response = guarded.ask(
                "POST", route.path, content=body, headers={"content-type": kind, "content-encoding": encoding}
            )
            assert response.status_code == 415, route
            assert has_code(response, "unsupported_media_type")
            assert response.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"5", b"\xff\xfe", b'{"model": "\\ud800"}', b"[" * 40_000, b'{"a":' * 8000]
)
def test_bad_bodies_are_the_clients_fault(guarded: Guarded, body: bytes) -> None:
    for route in guarded.posted():
        for kind in ("application/json", "multipart/form-data; boundary=b", "text/plain"):
            response = guarded.ask("POST", route.path, content=body, headers={"content-type": kind})
            assert response.status_code in {400, 415}, (route, kind)
            error_of(response)


def test_large_bodies_are_413(guarded: Guarded) -> None:
    form = (
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n' + b"x" * 200_000 + b"\r\n--b--\r\n"
    )
    for route in guarded.posted():
        answers = [
            guarded.ask("POST", route.path, content=content, headers={"content-type": kind})
            for content, kind in (
                (json.dumps({"model": "x" * 200_000}).encode(), "application/json"),
                (form, "multipart/form-data; boundary=b"),
            )
        ]
        # Each route reads one kind of the two.
        assert sorted(answer.status_code for answer in answers) == [413, 415], route
        for answer in answers:
            error_of(answer)


def test_slow_bodies_are_408(guarded: Guarded) -> None:
    def answer(route: Route, kind: str) -> tuple[list[int], str | None]:
        fields = {"content_type": kind, "content_length": "100", "authorization": f"Bearer {key_of(route.path)}"}
        with guarded.running.connect() as connection:
            connection.sendall(head("POST", route.path, connection="close", **fields) + b"-")
            raw = read_all(connection)
        if MESSAGES.match(route.path):
            return statuses(raw), None
        return statuses(raw), envelope(raw)["code"]

    def answers(route: Route) -> list[tuple[list[int], str | None]]:
        return [answer(route, kind) for kind in ("application/json", "multipart/form-data; boundary=b")]

    expected = [([408], "request_timeout"), ([415], "unsupported_media_type")]
    with ThreadPoolExecutor(16) as pool:
        for route, found in zip(guarded.posted(), pool.map(answers, guarded.posted()), strict=True):
            if MESSAGES.match(route.path):
                assert sorted(found) == [(status, None) for status, _ in expected]
            else:
                assert sorted(found) == expected, route
