"""The endpoints that a batch may name: each answers a body as it would over HTTP, without any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from core_engine import Caller
from gateway.body import decode_json
from gateway.chat import ChatOperation
from gateway.completions import CompletionOperation
from gateway.errors import invalid
from gateway.operation import Operation
from gateway.protocol.chat import ChatRequest
from gateway.protocol.completions import CompletionRequest
from gateway.protocol.fields import GenerationFields
from gateway.serving import answer
from gateway.state import Gateway

Fields = TypeVar("Fields", bound=GenerationFields)
Answer = Callable[[Gateway, bytes, Caller], Awaitable[bytes]]


async def _generate(
    decoder: msgspec.json.Decoder[Fields],
    operation: Callable[[Fields], Operation],
    gateway: Gateway,
    body: bytes,
    caller: Caller,
) -> bytes:
    fields = await decode_json(gateway, body, decoder)
    if fields.stream:
        raise invalid("A line of a batch can't be answered as a stream.", param="stream")
    return await answer(gateway, operation(fields), caller)


ENDPOINTS: Mapping[str, Answer] = {
    "/v1/chat/completions": partial(_generate, msgspec.json.Decoder(ChatRequest), ChatOperation),
    "/v1/completions": partial(_generate, msgspec.json.Decoder(CompletionRequest), CompletionOperation),
}
