"""What an endpoint that generates text has to say: what to generate, and how the answer is written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

from gateway.choice import Piece
from gateway.generation import GenerationPlan
from gateway.protocol.fields import GenerationFields
from gateway.protocol.usage import Usage
from gateway.served_model import Serving


class Writer(Protocol):
    """Writes one answer as JSON, whole or in chunks."""

    def chunks(self, piece: Piece) -> Iterable[bytes]:
        """What a piece adds to the stream."""
        ...

    def usage_chunk(self, usage: Usage) -> bytes:
        """The last chunk of a stream that was asked for usage."""
        ...

    def answer(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer out of all pieces."""
        ...


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
