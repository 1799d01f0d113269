"""ResponseWriter: a response that grows delta by delta, told whole or as events."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from gateway.choice import Piece
from gateway.deltas import ArgumentsDelta, CallStart, ReasoningDelta, TextDelta
from gateway.errors import ApiError
from gateway.logprobs import LogprobWriter
from gateway.protocol.chat import TokenLogprob
from gateway.protocol.responses import (
    FunctionCall,
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningText,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
)
from gateway.protocol.usage import Usage
from gateway.responses_api.items import item_id
from gateway.stream import HEARTBEAT, named_frame

Keep = Callable[[Response], Awaitable[bool]]


class ResponseWriter:
    """Writes one response; see Writer. Its end is told only once `keep` is done, so that it can be read at once."""

    heartbeat = HEARTBEAT

    def __init__(self, response: Response, logprobs: LogprobWriter | None, keep: Keep | None) -> None:
        self.response = response
        self._logprobs = logprobs
        self._keep = keep
        self._num_events = 0
        self._num_reasoning_tokens = 0
        self._open: OutputItem | None = None
        self._unplaced: list[TokenLogprob] = []  # of tokens whose text has not come yet
        self._ended_by_length = False

    def opening(self) -> bytes:
        """That the response is there and being worked on."""
        return self._state("created") + self._state("in_progress")

    def frames(self, piece: Piece) -> bytes:
        """What the piece adds."""
        return b"".join(self._take(piece))

    async def closing(self, usage: Usage) -> bytes:
        """The end of what is open, and of the response."""
        frames = list(self._close_all())
        await self._finish(usage)
        return b"".join(frames) + self._state(self.response.status)

    async def answer(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole response."""
        for piece in pieces:
            self.frames(piece)
        for _ in self._close_all():
            pass
        await self._finish(usage)
        return self.encoded()

    def failure(self, error: ApiError) -> bytes:
        """The end of a response that can't be finished; what was said so far stays in it."""
        self.fail(error)
        return self._state("failed")

    def encoded(self) -> bytes:
        """The response as it is."""
        return msgspec.json.encode(self.response)

    def fail(self, error: ApiError) -> None:
        """Say that the response can't be finished."""
        self._interrupt("failed")
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        self.response.error = ResponseError(code, str(error))

    def cancel(self) -> None:
        """Say that the response was given up on request."""
        self._interrupt("cancelled")

    def _interrupt(self, status: Status) -> None:
        if self._open is not None:
            self._open.status = "incomplete"
        self.response.status = status

    def _take(self, piece: Piece) -> Iterator[bytes]:
        if self._logprobs is not None:
            self._unplaced += self._logprobs.chat(piece.entries).content
        if piece.deltas and all(isinstance(delta, ReasoningDelta) for delta in piece.deltas):
            self._num_reasoning_tokens += len(piece.token_ids)
        for delta in piece.deltas:
            match delta:
                case TextDelta(text):
                    yield from self._say(text)
                case ReasoningDelta(text):
                    yield from self._think(text)
                case CallStart(_, call_id, name):
                    yield from self._close("completed")
                    call = FunctionCall(id=item_id("function_call"), call_id=call_id, name=name)
                    yield self._add(call)
                case ArgumentsDelta(_, text):
                    assert isinstance(self._open, FunctionCall)
                    self._open.arguments += text
                    yield self._item_event("function_call_arguments.delta", delta=text)
        self._ended_by_length |= piece.finish_reason == "length"

    def _say(self, text: str) -> Iterator[bytes]:
        if not isinstance(self._open, OutputMessage):
            yield from self._close("completed")
            yield self._add(OutputMessage(id=item_id("message")))
            part = OutputText()
            yield self._item_event("content_part.added", content_index=0, part=part)
            self._open_message.content = [part]
        (part,) = self._open_message.content
        logprobs, self._unplaced = self._unplaced, []
        part.text += text
        part.logprobs += logprobs
        if text:
            yield self._item_event("output_text.delta", content_index=0, delta=text, logprobs=logprobs)

    def _think(self, text: str) -> Iterator[bytes]:
        if not isinstance(self._open, Reasoning):
            yield from self._close("completed")
            item = Reasoning(id=item_id("reasoning"))
            yield self._add(item)
            part = ReasoningText()
            yield self._item_event("content_part.added", content_index=0, part=part)
            item.content = [part]
        assert isinstance(self._open, Reasoning)
        self._open.content[0].text += text
        yield self._item_event("reasoning_text.delta", content_index=0, delta=text)

    @property
    def _open_message(self) -> OutputMessage:
        assert isinstance(self._open, OutputMessage)
        return self._open

    def _add(self, item: OutputItem) -> bytes:
        self._open = item
        self.response.output.append(item)
        return self._event("output_item.added", output_index=self._output_index, item=item)

    def _close(self, status: Status) -> Iterator[bytes]:
        match self._open:
            case None:
                return
            case OutputMessage(content=[part]):
                yield self._item_event("output_text.done", content_index=0, text=part.text, logprobs=part.logprobs)
                yield self._item_event("content_part.done", content_index=0, part=part)
            case Reasoning(content=[thought]):
                yield self._item_event("reasoning_text.done", content_index=0, text=thought.text)
                yield self._item_event("content_part.done", content_index=0, part=thought)
            case FunctionCall(arguments=arguments, name=name):
                yield self._item_event("function_call_arguments.done", arguments=arguments, name=name)
        self._open.status = status
        yield self._event("output_item.done", output_index=self._output_index, item=self._open)
        self._open = None

    def _close_all(self) -> Iterator[bytes]:
        """An answer of nothing is a message without text; what the length cut is incomplete."""
        if not self.response.output or (self._unplaced and isinstance(self._open, OutputMessage)):
            yield from self._say("")
        yield from self._close("incomplete" if self._ended_by_length else "completed")

    async def _finish(self, usage: Usage) -> None:
        response = self.response
        if self._ended_by_length:
            response.status = "incomplete"
            response.incomplete_details = IncompleteDetails("max_output_tokens")
        else:
            response.status = "completed"
            response.completed_at = int(time.time())
        response.usage = ResponseUsage(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputDetails(usage.prompt_tokens_details.cached_tokens),
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputDetails(self._num_reasoning_tokens),
            total_tokens=usage.total_tokens,
        )
        if self._keep is not None and not await self._keep(response):
            response.store = False  # nobody shall count on it

    @property
    def _output_index(self) -> int:
        return len(self.response.output) - 1

    def _item_event(self, event: str, /, **fields: Any) -> bytes:
        assert self._open is not None
        return self._event(event, item_id=self._open.id, output_index=self._output_index, **fields)

    def _state(self, name: str) -> bytes:
        return self._event(name, response=self.response)

    def _event(self, event: str, /, **fields: Any) -> bytes:
        kind = f"response.{event}"
        frame = named_frame(kind, msgspec.json.encode({"type": kind, "sequence_number": self._num_events, **fields}))
        self._num_events += 1
        return frame
