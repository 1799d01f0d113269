from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.body import decode_body, read_body
from gateway.errors import ApiError, ClientDisconnected
from gateway.protocol.chat import ChatRequest
from gateway.settings import GatewaySettings

JSON = [(b"content-type", b"application/json")]
SETTINGS = GatewaySettings(max_body_bytes=100, body_timeout_seconds=0.05)
DECODER = msgspec.json.Decoder(ChatRequest)


class Sender:
    """An ASGI `receive` that gives these parts, then a disconnect or silence."""

    def __init__(self, parts: Sequence[bytes], *, complete: bool = True, silent: bool = False) -> None:
        last = len(parts) - 1
        self.messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": not complete or number < last}
            for number, part in enumerate(parts)
        ]
        self.silent = silent

    async def __call__(self) -> Any:
        if self.messages:
            return self.messages.pop(0)
        if self.silent:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}


async def refusal(headers: list[tuple[bytes, bytes]], sender: Sender) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await read_body(headers, sender, SETTINGS)
    return caught.value


async def test_a_body_in_parts_is_joined() -> None:
    assert await read_body(JSON, Sender([b"{", b"", b"}"]), SETTINGS) == b"{}"


@pytest.mark.parametrize("kind", [b"application/json; charset=utf-8", b"application/vnd.api+json", b"Application/JSON"])
async def test_kinds_of_json_are_read(kind: bytes) -> None:
    assert await read_body([(b"content-type", kind)], Sender([b"{}"]), SETTINGS) == b"{}"


async def test_a_body_without_a_type_is_read() -> None:
    assert await read_body([], Sender([b"{}"]), SETTINGS) == b"{}"


@pytest.mark.parametrize("kind", [b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"])
async def test_other_types_are_415(kind: bytes) -> None:
    assert (await refusal([(b"content-type", kind)], Sender([b"{}"]))).status == 415


async def test_compressed_bodies_are_415() -> None:
    assert (await refusal([*JSON, (b"content-encoding", b"gzip")], Sender([b"{}"]))).status == 415


async def test_a_large_body_is_413_after_what_was_sent_is_taken_in() -> None:
    sender = Sender([b"x" * 60] * 4)
    error = await refusal(JSON, sender)
    assert error.status == 413
    assert error.headers()["connection"] == "close"
    assert not sender.messages


async def test_a_client_that_waits_for_a_word_is_told_before_it_sends() -> None:
    sender = Sender([b"x" * 101])
    error = await refusal([*JSON, (b"content-length", b"101"), (b"expect", b"100-continue")], sender)
    assert error.status == 413
    assert sender.messages


async def test_a_body_that_never_ends_is_408() -> None:
    assert (await refusal(JSON, Sender([b"{"], complete=False, silent=True))).status == 408


async def test_a_client_that_leaves_is_noticed() -> None:
    with pytest.raises(ClientDisconnected):
        await read_body(JSON, Sender([b"{"], complete=False), SETTINGS)


def decode_error(body: bytes, max_depth: int = 64) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode_body(body, DECODER, max_depth)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert decode_error('{"model": "m", "messages": []}'.encode(encoding)).code == "invalid_json"


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"model": "\xff"}', b'{"model": "\\ud800"}', b'{"model": NaN}', b'{"a": 1,}']
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    error = decode_error(body)
    assert error.code == "invalid_json"
    assert error.param is None


def nested(depth: int, *, filler: str = "") -> bytes:
    deep = "[" * (depth - 1) + filler + "]" * (depth - 1)
    return f'{{"model": "m", "x": {deep}, "messages": [{{"role": "user"}}]}}'.encode()


def test_nesting_is_counted_exactly() -> None:
    assert decode_body(nested(10), DECODER, 10).model == "m"
    assert "deeper than 10" in str(decode_error(nested(11), 10))


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"x":' * 100_000, nested(100_000)])
def test_the_deepest_nesting_is_an_ordinary_error(body: bytes) -> None:
    assert decode_error(body).code == "invalid_json"


def test_brackets_in_strings_do_not_nest() -> None:
    quoted = '"' + "[{" * 100 + '\\"' + "[" * 100 + '"'
    assert decode_body(nested(5, filler=quoted), DECODER, 10).model == "m"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (b'"temperature": "1"', "temperature"),
        (b'"stop": ["a", ""]', "stop[1]"),
        (b'"logit_bias": {"1": 101}', "logit_bias"),
        (b'"stream_options": {"include_usage": 1}', "stream_options.include_usage"),
        (b'"tools": [1]', "tools[0]"),
    ],
)
def test_an_error_names_the_field(fields: bytes, param: str) -> None:
    error = decode_error(b'{"model": "m", "messages": [{"role": "user"}], ' + fields + b"}")
    assert error.param == param
    assert param in str(error)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (b'"tool_choice": "some"', "'tool_choice': 'some' is not one of auto, none, required."),
        (b'"tool_choice": {"type": "tool"}', "'tool_choice.type': 'tool' is not one of function, allowed_tools."),
        (b'"response_format": {"type": "xml"}', "'xml' is not one of json_object, json_schema, text."),
    ],
)
def test_an_error_says_what_would_be_right(fields: bytes, said: str) -> None:
    assert said in str(decode_error(b'{"model": "m", "messages": [{"role": "user"}], ' + fields + b"}"))


def test_a_missing_field_is_named() -> None:
    error = decode_error(b'{"model": "m"}')
    assert (error.param, error.code) == ("messages", "missing_required_parameter")
    assert decode_error(b'{"model": "m", "messages": [{}]}').param == "messages[0].role"


def test_a_body_that_is_no_object_has_no_param() -> None:
    assert decode_error(b"[]").param is None
