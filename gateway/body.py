"""Reading a request's body: bounded in size, time and depth, then decoded strictly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.types import Receive

from core_engine import with_choices
from gateway.errors import ApiError, ClientDisconnected, invalid
from gateway.settings import GatewaySettings
from gateway.state import Gateway

T = TypeVar("T")

# What is read and thrown away of a body that is too large, so that the client gets to read its 413.
_DISCARD_BYTES = 64 * 1024 * 1024
_DISCARD_SECONDS = 5.0

# Above it decoding is left to a thread: it takes longer than the hop to one.
_INLINE_BYTES = 256 * 1024

_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS_ONLY = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ERROR_PATH = re.compile(r" - at `\$\.?(.*)`$")
_MISSING_FIELD = re.compile(r"^Object missing required field `(.*?)`")


async def read_json(gateway: Gateway, request: Request[Any, Any, Any], decoder: msgspec.json.Decoder[T]) -> T:
    """Read and decode the body of a request; raises what `read_body` and `decode_body` raise."""
    return await decode_json(
        gateway, await read_body(request.scope["headers"], request.receive, gateway.settings), decoder
    )


async def decode_json(gateway: Gateway, body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body, in a thread where that takes long; raises what `decode_body` raises."""
    settings = gateway.settings
    if len(body) <= _INLINE_BYTES:
        return decode_body(body, decoder, settings.max_json_depth)
    return await gateway.workers.run(lambda: decode_body(body, decoder, settings.max_json_depth))


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, settings: GatewaySettings) -> bytes:
    """Return the whole body of a JSON request.

    Raises ApiError: 415 for another content type or a compressed body, 413 above `max_body_bytes`, 408 when the
    body isn't there within `body_timeout_seconds`. Raises ClientDisconnected when the client leaves first.
    """
    fields = dict(headers)
    require_uncompressed(fields)
    _require_json(fields)
    declared = fields.get(b"content-length", b"")
    limit = settings.max_body_bytes
    too_large = ApiError(
        413,
        f"The request body is larger than {limit} bytes, the most that is read.",
        code="body_too_large",
        headers={"connection": "close"},
    )
    if declared.isdigit() and int(declared) > limit and b"expect" in fields:
        raise too_large  # the client waits for a word before it sends anything
    try:
        async with asyncio.timeout(settings.body_timeout_seconds):
            body = await _receive(receive, limit)
    except TimeoutError:
        message = f"The request body was not complete within {settings.body_timeout_seconds:g} seconds."
        raise ApiError(408, message, code="request_timeout", headers={"connection": "close"}) from None
    if body is None:
        raise too_large
    return body


def _require_json(headers: dict[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise ApiError(
            415, "The body must be JSON: send it with `content-type: application/json`.", code="unsupported_media_type"
        )


def require_uncompressed(headers: Mapping[bytes, bytes]) -> None:
    """Raise a 415 for a compressed body, which could be a thousand times as large as the limit that it meets."""
    if headers.get(b"content-encoding", b"identity").strip().lower() not in {b"identity", b""}:
        message = "Compressed request bodies are not read: send it without `content-encoding`."
        raise ApiError(415, message, code="unsupported_media_type", headers={"accept-encoding": "identity"})


async def _receive(receive: Receive, limit_bytes: int) -> bytes | None:
    """The body; None where it is larger than the limit, after a bounded part of the rest was discarded."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        body += message["body"]
        if len(body) > limit_bytes:
            if message["more_body"]:
                await discard(receive)
            return None
        if not message["more_body"]:
            return bytes(body)


async def discard(receive: Receive) -> None:
    """Read and throw away what still comes of a body that is refused, up to a limit."""
    left = _DISCARD_BYTES
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message["more_body"]:
                    return
                left -= len(message["body"])
    except TimeoutError:
        return


def decode_body(body: bytes, decoder: msgspec.json.Decoder[T], max_depth: int) -> T:
    """Decode strict UTF-8 JSON; raises a 400 that names the field at fault."""
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise invalid("The body must be UTF-8 without a byte order mark.", code="invalid_json")
    check_depth(body, max_depth)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _field_error(with_choices(str(error), decoder.type)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        detail = "it ends too early" if "truncated" in str(error) else str(error)
        raise invalid(f"The body is not valid JSON in UTF-8: {detail}.", code="invalid_json") from None


def check_depth(body: bytes, max_depth: int) -> None:
    """Refuse deep nesting before a recursive parser meets it.

    Once strings and everything else but brackets are gone, each pass over `[]` removes the innermost level, so a
    document of depth d is gone after d passes, all of them at the speed of C.
    """
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return
    brackets = _JSON_STRING.sub(b"", body).translate(_BRACKETS_ONLY, _NOT_BRACKETS)
    for _ in range(max_depth):
        peeled = brackets.replace(b"[]", b"")
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    if brackets:
        message = f"The body nests deeper than {max_depth} levels, or its brackets don't match."
        raise invalid(message, code="invalid_json")


def _field_error(text: str) -> ApiError:
    """Turn a message of msgspec into ours: which field, what was expected."""
    found = _ERROR_PATH.search(text)
    problem = text[: found.start()] if found else text
    path = (found.group(1) if found else "").replace("[...]", "")
    if missing := _MISSING_FIELD.match(problem):
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return invalid(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
    problem = problem[:1].lower() + problem[1:]
    where = f"for '{path}'" if path else "for the body"
    return invalid(f"Invalid value {where}: {problem}.", param=path or None, code="invalid_value")
