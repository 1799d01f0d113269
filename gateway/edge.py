"""What every request meets first: identity, limits, origin, key; and what every response carries.

A plain ASGI wrapper around the application, because Litestar answers unknown paths and wrong methods before its own
middleware runs, and nothing may answer without these.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from gateway.auth import ApiKeys
from gateway.cors import CorsRule, Headers, is_preflight, preflight_headers
from gateway.errors import ApiError, report
from gateway.messages_api.envelope import in_form, wants_messages_form
from gateway.settings import GatewaySettings

_SAFE_REQUEST_ID = re.compile(rb"^[A-Za-z0-9._:-]{1,64}$")
_SLASHES = re.compile(r"/+")


class Edge:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, settings: GatewaySettings, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys
        self._cors = CorsRule(settings.cors_origins, with_keys=bool(keys))
        self._max_header_bytes = settings.max_header_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; never raises an exception to the server."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        await self._answer(scope, receive, send)

    async def _answer(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = bool(origin) and self._cors.allows(origin)
        identity = request_id(headers.get(b"x-request-id"))
        common: Headers = [(b"x-request-id", identity)]
        if allowed:
            common += self._cors.response_headers(origin)
        # A copy, since the server keeps the original to know that this was a HEAD.
        scope = scope.copy()
        scope["path"] = normal_path(scope["path"])
        messages_form = wants_messages_form(scope["path"], headers)
        if messages_form:
            common.append((b"request-id", identity))
        carrier = _Carrier(send, common, without_body=scope["method"] == "HEAD")
        if scope["method"] == "HEAD":
            scope["method"] = HttpMethod.GET
        try:
            self._check_size(scope)
            _check_host(scope)
            if origin and not allowed:
                raise self._cors.refusal(origin)
            if is_preflight(scope["method"], headers):
                await carrier.answer(204, preflight_headers(headers))
                return
            self._keys.check(scope["path"], headers)
            others = [header for header in scope["headers"] if header[0] != b"x-request-id"]
            scope["headers"] = [*others, (b"x-request-id", identity)]  # where handlers find it, whoever chose it
            await self._app(scope, receive, carrier)
        except Exception as error:
            answer = report(error)
            status, body = in_form(answer, identity.decode(), messages_form=messages_form)
            await carrier.fail(answer, status, body)

    def _check_size(self, scope: HTTPScope) -> None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._max_header_bytes:
            message = f"The request line and headers are larger than {self._max_header_bytes} bytes."
            raise ApiError(431, message, code="headers_too_large", headers={"connection": "close"})


def _check_host(scope: HTTPScope) -> None:
    """HTTP/1.1 wants one host: of two, servers in a row might each believe another."""
    num_hosts = sum(name == b"host" for name, _ in scope["headers"])
    if num_hosts > 1 or (num_hosts == 0 and scope["http_version"] == "1.1"):
        raise ApiError(
            400, "The request needs one `host` header.", code="invalid_http", headers={"connection": "close"}
        )


class _Carrier:
    """The `send` of one request: adds the common headers, and leaves the body out of answers to HEAD."""

    def __init__(self, send: Send, common: Headers, *, without_body: bool) -> None:
        self._send = send
        self._common = common
        self._without_body = without_body
        self._started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            message["headers"] = [*message.get("headers", []), *self._common]
        elif message["type"] == "http.response.body" and self._without_body:
            if message["more_body"]:
                return
            message["body"] = b""
        await self._send(message)

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a whole response, unless one was started already."""
        if self._started:
            return
        await self({"type": "http.response.start", "status": status, "headers": list(headers)})
        await self({"type": "http.response.body", "body": body, "more_body": False})

    async def fail(self, error: ApiError, status: int, body: bytes) -> None:
        """Send an error in its form, unless a response was started: then the server cuts the connection."""
        if self._started:
            raise error
        await self.answer(status, error_headers(error, body), body)


def error_headers(error: ApiError, body: bytes) -> Headers:
    """Headers of an error with this body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers().items()]
    return headers


def request_id(offered: bytes | None) -> bytes:
    """The client's own id where it is short and of a safe charset, else a new one."""
    if offered is not None and _SAFE_REQUEST_ID.match(offered):
        return offered
    return b"req_" + uuid.uuid4().hex.encode()


def normal_path(path: str) -> str:
    """The path as routes and the key check both see it: no doubled slashes, none at the end."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"
