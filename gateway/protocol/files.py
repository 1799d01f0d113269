"""`/v1/files`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

# Inputs come from clients, outputs and errors from batches.
INPUT_PURPOSE, OUTPUT_PURPOSE = "batch", "batch_output"


class ExpiresAfter(msgspec.Struct, frozen=True):
    """How long a file shall be kept."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, msgspec.Meta(ge=3600, le=30 * 86_400)]


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """One file; times are Unix seconds."""

    id: str
    object: str = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: str = "processed"


class FileDeleted(msgspec.Struct, frozen=True):
    """The answer to a deletion."""

    id: str
    object: str = "file"
    deleted: bool = True


class FileList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of files."""

    object: str = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
