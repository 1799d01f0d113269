"""From a generation request to its answer, streamed or whole: the way that both endpoints share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from litestar import Request
from litestar.response.base import ASGIResponse

from core_engine import Caller
from gateway.auth import api_key
from gateway.choice import Piece
from gateway.disconnect import unless_disconnected
from gateway.errors import ClientDisconnected, to_api_error
from gateway.generation import Generation
from gateway.operation import Operation, Writer
from gateway.responses import json_response
from gateway.state import Gateway
from gateway.stream import EventStream
from gateway.structured import naming
from gateway.timing import timing_of_answer, timing_of_stream


async def respond(gateway: Gateway, operation: Operation, request: Request[Any, Any, Any]) -> ASGIResponse:
    """Answer a decoded request. The engine has accepted it when this returns a stream.

    Raises ApiError and the engine's errors; nothing runs on for a client that hung up.
    """
    exchange = Exchange(gateway, operation, caller_of(gateway, request), dict(request.headers))
    try:
        if operation.fields.stream:
            await unless_disconnected(request.receive, exchange.begin())
            return exchange.stream()
        body = await unless_disconnected(request.receive, exchange.answer())
    except BaseException as error:
        exchange.end(error)
        raise
    exchange.end(None)
    return json_response(body, headers=exchange.headers_of_answer())


async def answer(gateway: Gateway, operation: Operation, caller: Caller) -> bytes:
    """The whole answer to a request that came in another way than over HTTP; raises as `respond` does."""
    exchange = Exchange(gateway, operation, caller, headers={})
    try:
        body = await exchange.answer()
    except BaseException as error:
        exchange.end(error)
        raise
    exchange.end(None)
    return body


def caller_of(gateway: Gateway, request: Request[Any, Any, Any]) -> Caller:
    """Whose request it is."""
    headers = dict(request.headers)
    return gateway.callers.identify(headers, api_key(headers))


class Exchange:
    """One request on its way through the engine. `end` must be called, whatever happens."""

    def __init__(self, gateway: Gateway, operation: Operation, caller: Caller, headers: dict[str, str]) -> None:
        fields = operation.fields
        self._gateway = gateway
        self._operation = operation
        self._serving = gateway.serving(fields.model)
        self._caller = caller
        self._generation: Generation | None = None
        self._writer: Writer | None = None
        self._ended = False
        self._span = gateway.telemetry.request(
            operation.name,
            fields.model,
            headers,
            max_tokens=operation.max_tokens,
            temperature=fields.temperature,
            top_p=fields.top_p,
            top_k=fields.top_k,
            seed=fields.seed,
            stream=bool(fields.stream),
            stop=fields.stops or None,
            n=fields.n,
            frequency_penalty=fields.frequency_penalty,
            presence_penalty=fields.presence_penalty,
        )
        self._serving.activity.begin()

    def headers_of_answer(self) -> dict[str, str]:
        """What admission said, and where the time went."""
        generation = self._generation
        return {} if generation is None else generation.limit_headers | timing_of_answer(generation.outcomes)

    def headers_of_stream(self) -> dict[str, str]:
        """What admission said, and where the time up to now went; a heartbeat may be sent before that is known."""
        generation = self._generation
        return {} if generation is None else generation.limit_headers | timing_of_stream(generation.timings)

    async def begin(self) -> tuple[Generation, Writer]:
        """Check the request and have the engine accept it."""
        serving = self._serving
        plan = await self._gateway.workers.run(lambda: self._operation.plan(serving))
        self._writer = self._operation.writer(plan, serving)
        with naming(plan.grammar_field):
            if plan.sampling.grammar is not None:
                await serving.grammars.check(plan.sampling.grammar)
            self._generation = Generation(serving.client, serving.text_model, plan, self._span, self._caller)
            await self._generation.start()
        return self._generation, self._writer

    async def answer(self) -> bytes:
        """The whole answer."""
        await self.begin()
        return await self.rest()

    async def rest(self) -> bytes:
        """The same once `begin` is done."""
        assert self._generation is not None
        assert self._writer is not None
        pieces = list(self._generation.begin())
        while not self._generation.finished:
            pieces += await self._generation.next()
        return await self._writer.answer(pieces, self._generation.usage)

    def stream(self) -> EventStream:
        """The answer as events; `begin` must be done."""
        generation, writer = self._generation, self._writer
        assert generation is not None
        assert writer is not None
        return EventStream(
            self._frames(generation, writer),
            divert=lambda ready, write: generation.divert(ready, lambda piece: write(writer.frames(piece))),
            failure=writer.failure,
            close=self.end,
            heartbeat=writer.heartbeat,
            heartbeat_seconds=self._gateway.settings.heartbeat_seconds,
            headers=self.headers_of_stream,
        )

    async def _frames(self, generation: Generation, writer: Writer) -> AsyncGenerator[bytes, None]:
        if opening := writer.opening():
            yield opening
        pieces: Iterable[Piece] = generation.begin()
        while True:
            for piece in pieces:
                yield writer.frames(piece)
                if piece.prompt_tokens:
                    await asyncio.sleep(0)  # many of them come at once, and others want to be served too
            if generation.finished:
                break
            pieces = await generation.next()
        yield await writer.closing(generation.usage)

    def end(self, error: BaseException | None) -> None:
        """Cancel what still runs and tell telemetry how it went."""
        if self._ended:
            return
        self._ended = True
        self._serving.activity.end()
        generation = self._generation
        if generation is not None:
            generation.close()
        if error is None and generation is not None:
            self._span.finish(
                *generation.outcomes, finish_reasons=generation.finish_reasons, response_id=generation.plan.id
            )
        elif isinstance(error, ClientDisconnected):
            self._span.error("client_disconnected", client_at_fault=True)
        elif not isinstance(error, Exception):
            self._span.error("cancelled")
        else:
            answer = to_api_error(error)
            self._span.error(answer.code or str(answer.status), client_at_fault=answer.status < 500)
