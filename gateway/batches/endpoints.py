"""The endpoints that a batch may name: each answers a body as it would over HTTP, without any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from core_engine import Caller
from gateway.body import decode_json
from gateway.chat import ChatOperation
from gateway.completions import CompletionOperation
from gateway.embeddings import EmbeddingExchange
from gateway.errors import ApiError, invalid
from gateway.operation import Operation
from gateway.protocol.chat import ChatRequest
from gateway.protocol.completions import CompletionRequest
from gateway.protocol.embeddings import EmbeddingRequest
from gateway.protocol.fields import GenerationFields
from gateway.protocol.responses import ResponseRequest
from gateway.responses_api.operation import response_operation
from gateway.responses_api.store import ResponseStore
from gateway.serving import answer
from gateway.state import Gateway

Fields = TypeVar("Fields", bound=GenerationFields)


@dataclass(frozen=True, slots=True)
class Counter:
    """Where lines are handed in."""

    gateway: Gateway
    responses: ResponseStore


Answer = Callable[[Counter, bytes, Caller], Awaitable[bytes]]


async def _generate(
    decoder: msgspec.json.Decoder[Fields],
    operation: Callable[[Fields], Operation],
    counter: Counter,
    body: bytes,
    caller: Caller,
) -> bytes:
    fields = await decode_json(counter.gateway, body, decoder)
    if fields.stream:
        raise _refused("stream", "answered as a stream")
    return await answer(counter.gateway, operation(fields), caller)


_RESPONSE_DECODER = msgspec.json.Decoder(ResponseRequest)


async def _respond(counter: Counter, body: bytes, caller: Caller) -> bytes:
    """Kept only where the line says so: the lines of a batch would push out all that the tenant has kept."""
    fields = await decode_json(counter.gateway, body, _RESPONSE_DECODER)
    if fields.stream:
        raise _refused("stream", "answered as a stream")
    if fields.background:
        raise _refused("background", "answered in the background")
    fields.store = bool(fields.store)
    operation = await response_operation(counter.gateway, counter.responses, fields, caller.tenant)
    return await answer(counter.gateway, operation, caller)


_EMBEDDING_DECODER = msgspec.json.Decoder(EmbeddingRequest)


async def _embed(counter: Counter, body: bytes, caller: Caller) -> bytes:
    fields = await decode_json(counter.gateway, body, _EMBEDDING_DECODER)
    exchange = EmbeddingExchange(counter.gateway, fields, caller, headers={})
    return msgspec.json.encode(await exchange.answer(lambda work: work))


def _refused(field: str, what: str) -> ApiError:
    return invalid(f"A line of a batch can't be {what}: leave out '{field}'.", param=field)


ENDPOINTS: Mapping[str, Answer] = {
    "/v1/chat/completions": partial(_generate, msgspec.json.Decoder(ChatRequest), ChatOperation),
    "/v1/completions": partial(_generate, msgspec.json.Decoder(CompletionRequest), CompletionOperation),
    "/v1/embeddings": _embed,
    "/v1/responses": _respond,
}
