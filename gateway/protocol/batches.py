"""`/v1/batches`, and the lines of the files that batches read and write."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.protocol.files import ExpiresAfter

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
FINAL: frozenset[Status] = frozenset({"failed", "completed", "expired", "cancelled"})

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Key = Annotated[str, msgspec.Meta(max_length=64)]
_Value = Annotated[str, msgspec.Meta(max_length=512)]
Metadata = Annotated[dict[_Key, _Value], msgspec.Meta(max_length=16)]


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a POST."""

    input_file_id: _Id
    endpoint: _Id
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchError(msgspec.Struct, frozen=True):
    """What is wrong with an input file; lines are counted from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(msgspec.Struct, frozen=True):
    """All that is wrong with it, up to a limit."""

    data: list[BatchError]
    object: str = "list"


class RequestCounts(msgspec.Struct, frozen=True):
    """Lines by how far they are."""

    total: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def num_left(self) -> int:
        """Lines without a result."""
        return self.total - self.completed - self.failed


class BatchInputDetails(msgspec.Struct, frozen=True):
    """Of the input tokens."""

    cached_tokens: int = 0


class BatchOutputDetails(msgspec.Struct, frozen=True):
    """Of the output tokens."""

    reasoning_tokens: int = 0


class BatchUsage(msgspec.Struct, frozen=True):
    """Tokens of all lines that succeeded."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: BatchInputDetails = BatchInputDetails()
    output_tokens_details: BatchOutputDetails = BatchOutputDetails()

    def __add__(self, other: BatchUsage) -> BatchUsage:
        return BatchUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            BatchInputDetails(self.input_tokens_details.cached_tokens + other.input_tokens_details.cached_tokens),
            BatchOutputDetails(
                self.output_tokens_details.reasoning_tokens + other.output_tokens_details.reasoning_tokens
            ),
        )


class BatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """One batch as clients see it; times are Unix seconds."""

    id: str
    object: str = "batch"
    endpoint: str
    model: str | None = None
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str = "24h"
    status: Status = "validating"
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = RequestCounts()
    usage: BatchUsage = BatchUsage()
    metadata: Metadata | None = None


class BatchList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of batches."""

    object: str = "list"
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class LineBody(msgspec.Struct, frozen=True):
    """As much of a line's body as is looked at before it runs."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class InputLine(msgspec.Struct, frozen=True):
    """One line of an input file, as it is checked."""

    custom_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    method: Literal["POST"]
    url: str
    body: LineBody


class RawLine(msgspec.Struct, frozen=True):
    """The same line as it is run: its body goes where that of an HTTP request would go."""

    body: msgspec.Raw


class LineResponse(msgspec.Struct, frozen=True):
    """What HTTP would have answered."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class LineError(msgspec.Struct, frozen=True):
    """Why a line was not run."""

    code: str
    message: str


class ResultLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an output or an error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None
