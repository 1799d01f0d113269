"""`/v1/embeddings`: from texts to vectors, each text a request of its own to the engine."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
from litestar import Request
from litestar.response.base import ASGIResponse

from core_engine import Caller, Outcome
from core_engine import Request as EngineRequest
from gateway.auth import api_key
from gateway.disconnect import unless_disconnected
from gateway.errors import ApiError, ClientDisconnected, invalid, limit_headers, to_api_error
from gateway.operation import new_id
from gateway.prompts import separate_prompts
from gateway.protocol.embeddings import (
    MAX_INPUTS,
    Embedding,
    EmbeddingAnswer,
    EmbeddingRequest,
    EmbeddingUsage,
)
from gateway.responses import json_response
from gateway.sampling import check_token_ids
from gateway.served_model import Serving
from gateway.state import Gateway

Guard = Callable[[Coroutine[Any, Any, list[bytes]]], Awaitable[list[bytes]]]

MAX_AT_ONCE = 64  # texts of one request in the engine, so that a long list leaves room for others


async def embed(gateway: Gateway, fields: EmbeddingRequest, request: Request[Any, Any, Any]) -> ASGIResponse:
    """Answer a decoded request. Raises ApiError and the engine's errors; nothing runs on for a client that hung up."""
    headers = dict(request.headers)
    exchange = EmbeddingExchange(gateway, fields, gateway.callers.identify(headers, api_key(headers)), headers)
    answer = await exchange.answer(lambda work: unless_disconnected(request.receive, work))
    return json_response(answer, headers=exchange.work.headers)


class EmbeddingExchange:
    """One request on its way through the engine, told to telemetry; raises what `embed` raises."""

    def __init__(self, gateway: Gateway, fields: EmbeddingRequest, caller: Caller, headers: dict[str, str]) -> None:
        self._gateway = gateway
        self._fields = fields
        self._serving = gateway.serving(fields.model, "embed")
        self._size = _size(fields.dimensions, self._serving)
        self._headers = headers
        self.work = EmbeddingWork(self._serving, caller, fields.priority)

    async def answer(self, guard: Guard) -> EmbeddingAnswer:
        """The whole answer; `guard` awaits the engine's work for as long as anybody wants it."""
        gateway, fields, serving = self._gateway, self._fields, self._serving
        span = gateway.telemetry.request("embeddings", fields.model, self._headers)
        serving.activity.begin()
        try:
            inputs = await gateway.workers.run(lambda: _inputs(fields, serving))
            span.submitted()
            vectors = await guard(self.work.embed(inputs))
            answer = await gateway.workers.run(lambda: _answer(fields, serving, inputs, vectors, self._size))
        except BaseException as error:
            if isinstance(error, ClientDisconnected):
                span.error("client_disconnected", client_at_fault=True)
            elif not isinstance(error, Exception):
                span.error("cancelled")
            else:
                seen = to_api_error(error)
                span.error(seen.code or str(seen.status), client_at_fault=seen.status < 500)
            raise
        finally:
            serving.activity.end()
        span.finish(*self.work.outcomes)
        return answer


class EmbeddingWork:
    """The texts of one request on their way through the engine."""

    def __init__(self, serving: Serving, caller: Caller, priority: int | None) -> None:
        self.outcomes: list[Outcome | None] = []
        self.headers: dict[str, str] = {}
        self._serving = serving
        self._caller = caller
        self._class_name, self._priority = caller.place(priority)
        self._id = new_id("embd")

    async def embed(self, inputs: list[list[int]]) -> list[bytes]:
        """The vector of each input, as little-endian float32."""
        vectors: list[bytes] = [b""] * len(inputs)
        numbers = iter(range(len(inputs)))

        async def one_after_the_other() -> None:
            for number in numbers:
                vectors[number] = await self._embed_one(number, inputs[number])

        workers = [asyncio.ensure_future(one_after_the_other()) for _ in range(min(MAX_AT_ONCE, len(inputs)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return vectors

    async def _embed_one(self, number: int, token_ids: list[int]) -> bytes:
        ticket = await self._serving.client.submit(
            EngineRequest(
                id=f"{self._id}-{number}",
                model=self._serving.info.model,
                prompt_token_ids=token_ids,
                kind="embed",
                tenant=self._caller.tenant,
                class_name=self._class_name,
                priority=self._priority,
                weight=self._caller.weight,
            )
        )
        try:
            (output,) = await ticket.next()
        finally:
            ticket.cancel()  # without effect once it has ended
        self.headers.update(limit_headers(ticket.limits))
        self.outcomes.append(ticket.outcome)
        if output.embedding is None:
            raise ApiError(500, "The engine could not embed this input.", code="engine_error")
        return output.embedding


def _inputs(fields: EmbeddingRequest, serving: Serving) -> list[list[int]]:
    """The tokens of each input; raises a 400 for one that is empty or too long, and for too many."""
    inputs = separate_prompts(fields.input, "input")
    if len(inputs) > MAX_INPUTS:
        raise invalid(f"There are {len(inputs)} inputs; at most {MAX_INPUTS} fit in a request.", param="input")
    limit = serving.info.max_model_len
    tokens: list[list[int]] = []
    for given in inputs:
        number = len(tokens)
        if not given:
            raise invalid(f"Input {number} is empty.", param="input")
        token_ids = serving.text_model.encode(given) if isinstance(given, str) else given
        check_token_ids(token_ids, "input", serving.info.vocab_size)
        if not token_ids:
            raise invalid(f"Input {number} gives no token.", param="input")
        if len(token_ids) > limit:
            message = (
                f"This model's maximum context length is {limit} tokens, however input {number} has "
                f"{len(token_ids)} tokens. Please reduce its length."
            )
            raise invalid(message, param="input", code="context_length_exceeded")
        tokens.append(token_ids)
    return tokens


def _size(dimensions: int | None, serving: Serving) -> int:
    """Numbers in each vector of the answer; raises a 400 for a length that the model was not trained for."""
    info = serving.info
    if dimensions is None or dimensions == info.embedding_size or dimensions in info.matryoshka_sizes:
        return dimensions or info.embedding_size
    lengths = sorted({*info.matryoshka_sizes, info.embedding_size})
    known = " or ".join(map(str, lengths))
    message = f"'dimensions' is {dimensions}, but the embeddings of '{info.model}' have {known}."
    raise invalid(message, param="dimensions")


def _answer(
    fields: EmbeddingRequest, serving: Serving, inputs: list[list[int]], vectors: list[bytes], size: int
) -> EmbeddingAnswer:
    numbers = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    if size < numbers.shape[1]:
        numbers = numbers[:, :size]
        numbers = numbers / np.maximum(np.linalg.norm(numbers, axis=1, keepdims=True), 1e-12)
    num_tokens = sum(map(len, inputs))
    return EmbeddingAnswer(
        data=[Embedding(index=index, embedding=_written(row, fields)) for index, row in enumerate(numbers)],
        model=serving.info.model,
        usage=EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    )


def _written(row: np.ndarray[Any, np.dtype[np.float32]], fields: EmbeddingRequest) -> list[float] | str:
    if fields.encoding_format == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    numbers: list[float] = row.tolist()
    return numbers
