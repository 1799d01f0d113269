"""What an endpoint that generates text has to say: what to generate, and how the answer is written."""

from __future__ import annotations

import abc
import asyncio
import uuid
from collections.abc import Iterable
from typing import Protocol

from gateway.choice import Piece
from gateway.errors import ApiError
from gateway.generation import GenerationPlan
from gateway.protocol.fields import GenerationFields
from gateway.protocol.usage import Usage
from gateway.served_model import Serving
from gateway.stream import DONE, HEARTBEAT, frame
from gateway.text_frame import PLACEHOLDER, TextFrame


class Writer(Protocol):
    """Writes one answer, as JSON or as the frames of a stream."""

    @property
    def heartbeat(self) -> bytes:
        """What shows while nothing is said that the stream is alive."""
        ...

    def opening(self) -> bytes:
        """Frames that come before the first piece."""
        ...

    def frames(self, piece: Piece) -> bytes:
        """What a piece adds to the stream."""
        ...

    async def closing(self, usage: Usage) -> bytes:
        """Frames that end a stream well."""
        ...

    def failure(self, error: ApiError) -> bytes:
        """Frames that end a stream that has begun and can't go on."""
        ...

    async def answer(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer out of all pieces."""
        ...


class ChunkWriter(abc.ABC):
    """A writer of chunks that are alike, the last of usage if the request wants it, and [DONE]."""

    heartbeat = HEARTBEAT

    def __init__(self, plan: GenerationPlan, fields: GenerationFields) -> None:
        self._plan = plan
        self._with_usage = wants_usage(fields)
        self._with_token_ids = bool(fields.return_token_ids)
        self._text_frames: dict[int, TextFrame] = {}  # of the choices that have begun

    @abc.abstractmethod
    def chunks(self, piece: Piece) -> Iterable[bytes]:
        """What a piece adds to the stream."""

    @abc.abstractmethod
    def text_chunk(self, index: int, text: str) -> bytes:
        """What a piece of nothing but text adds, but for the first of a choice."""

    @abc.abstractmethod
    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk of usage."""

    @abc.abstractmethod
    def whole(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer out of all pieces."""

    def opening(self) -> bytes:
        """Nothing: the first chunk comes with the first piece."""
        return b""

    def frames(self, piece: Piece) -> bytes:
        """A frame for each chunk."""
        text_frame = self._text_frames.get(piece.index)
        if text_frame is not None and (text := piece.only_text) is not None:
            return text_frame.fill(text)
        if text_frame is None and not self._with_token_ids:
            self._text_frames[piece.index] = TextFrame(frame(self.text_chunk(piece.index, PLACEHOLDER)))
        return b"".join(map(frame, self.chunks(piece)))

    async def closing(self, usage: Usage) -> bytes:
        """Usage and [DONE]."""
        return (frame(self.usage_chunk(usage)) if self._with_usage else b"") + DONE

    def failure(self, error: ApiError) -> bytes:
        """The error in its envelope, without [DONE]."""
        return frame(error.body())

    async def answer(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer; with log-probabilities of the prompt it is megabytes, and left to a thread."""
        if self._plan.sampling.prompt_logprobs is None:
            return self.whole(pieces, usage)
        return await asyncio.to_thread(self.whole, pieces, usage)


class Operation(Protocol):
    """One request to such an endpoint."""

    @property
    def name(self) -> str:
        """As telemetry calls the operation."""
        ...

    @property
    def fields(self) -> GenerationFields:
        """The decoded body."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """The caller's bound on new tokens."""
        ...

    def plan(self, serving: Serving) -> GenerationPlan:
        """Check, render and tokenise; raises a 400 for what can't be served. Runs in a thread: it may take long."""
        ...

    def writer(self, plan: GenerationPlan, serving: Serving) -> Writer:
        """A writer for the answer."""
        ...


def new_id(prefix: str) -> str:
    """An id nobody else has."""
    return f"{prefix}-{uuid.uuid4().hex}"


def wants_usage(fields: GenerationFields) -> bool:
    """Whether a stream ends with a chunk of token counts."""
    return bool(fields.stream_options and fields.stream_options.include_usage)
