"""Reading an upload: a multipart form whose file goes to disk while it comes, never as a whole into memory."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from litestar.types import Receive
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from gateway.body import discard, require_uncompressed
from gateway.errors import ApiError, ClientDisconnected, invalid

MAX_FIELDS = 8
MAX_FIELD_BYTES = 1024
MAX_FILENAME_CHARS = 255
WRITE_BYTES = 1024 * 1024  # gathered before a thread writes them

_FORM_OVERHEAD_BYTES = 64 * 1024  # for boundaries, headers and the other fields
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(slots=True)
class Upload:
    """A form that is complete: the file is at `path`, flushed to disk, and belongs to the caller."""

    path: Path
    filename: str = ""
    num_bytes: int = 0
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What an upload may take. `has_room` is asked, with the bytes so far, while it grows."""

    max_file_bytes: int
    idle_seconds: float  # without a byte
    total_seconds: float
    has_room: Callable[[int], bool]


async def receive_upload(
    headers: Iterable[tuple[bytes, bytes]], receive: Receive, directory: Path, limits: UploadLimits
) -> Upload:
    """Read a form with one file into a new file of the directory.

    Raises ApiError: 415 for another content type, 400 for a broken form or one without a file, 408 for a slow one, 413
    for a larger file, 507 where there is no room. Raises ClientDisconnected when the client leaves first. Nothing
    stays behind then.
    """
    fields = dict(headers)
    boundary = _boundary(fields)
    declared = fields.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limits.max_file_bytes + _FORM_OVERHEAD_BYTES and b"expect" in fields:
        raise _too_large(limits)  # the client waits for a word before it sends anything
    upload = Upload(directory / uuid.uuid4().hex)
    body = _Body(receive, limits)
    try:
        with upload.path.open("xb") as file:
            reader = _FormReader(upload, file.write, boundary, limits)
            async with aclosing(body.chunks()) as chunks:
                async for chunk in chunks:
                    await reader.feed(chunk)
            await reader.end()
            await asyncio.to_thread(flush_to_disk, file)
    except BaseException as error:
        upload.path.unlink(missing_ok=True)
        if isinstance(error, ApiError) and not body.complete:
            await discard(receive)  # so that the client gets to read its error
        raise
    return upload


class _Body:
    """The chunks of a request's body, as they come in time."""

    def __init__(self, receive: Receive, limits: UploadLimits) -> None:
        self.complete = False
        self._receive = receive
        self._limits = limits

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        now = asyncio.get_running_loop().time
        deadline = now() + self._limits.total_seconds
        num_bytes = 0
        while not self.complete:
            try:
                async with asyncio.timeout_at(min(deadline, now() + self._limits.idle_seconds)):
                    message = await self._receive()
            except TimeoutError:
                self.complete = True  # as far as anybody waits for it
                raise ApiError(
                    408, "The upload did not go on in time.", code="request_timeout", headers={"connection": "close"}
                ) from None
            if message["type"] != "http.request":
                raise ClientDisconnected
            self.complete = not message["more_body"]
            num_bytes += len(message["body"])
            if num_bytes > self._limits.max_file_bytes + _FORM_OVERHEAD_BYTES:
                raise _too_large(self._limits)
            if message["body"]:
                yield message["body"]


class _FormReader:
    """Takes the form apart."""

    def __init__(self, upload: Upload, write: Callable[[bytes], object], boundary: str, limits: UploadLimits) -> None:
        self._upload = upload
        self._write = write
        self._limits = limits
        self._parser = PushMultipartParser(boundary, max_segment_count=MAX_FIELDS)
        self._segment: MultipartSegment | None = None
        self._value = bytearray()
        self._unwritten = bytearray()
        self._has_file = False

    async def feed(self, chunk: bytes) -> None:
        """Take in the next part of the body."""
        if self._parser.closed:
            return  # what follows the end of a form means nothing
        try:
            for event in self._parser.parse(chunk):
                if isinstance(event, MultipartSegment):
                    self._begin(event)
                elif event is None:
                    self._end_segment()
                else:
                    self._take(bytes(event))
        except MultipartError as error:
            problem, *_ = error.args  # an exception that may follow shows bytes of the body
            raise _broken(str(problem).rstrip(".")) from None
        if len(self._unwritten) >= WRITE_BYTES:
            await self._flush()

    async def end(self) -> None:
        """Take note that the body is complete."""
        try:
            self._parser.close()
        except MultipartError:
            raise _broken("it ends too early") from None
        if not self._has_file:
            raise invalid("The form has no file: send it as the part 'file'.", "file", "missing_required_parameter")
        await self._flush()

    def _begin(self, segment: MultipartSegment) -> None:
        self._segment = segment
        if segment.name == "file":
            if self._has_file:
                raise invalid("The form has more than one file.", param="file")
            self._has_file = True
            self._upload.filename = safe_filename(segment.filename or "")

    def _take(self, data: bytes) -> None:
        assert self._segment is not None
        if self._segment.name != "file":
            self._value += data
            if len(self._value) > MAX_FIELD_BYTES:
                name = (self._segment.name or "")[:100]
                raise invalid(f"'{name}' is longer than {MAX_FIELD_BYTES} bytes.", param=name)
            return
        self._unwritten += data
        self._upload.num_bytes += len(data)
        if self._upload.num_bytes > self._limits.max_file_bytes:
            raise _too_large(self._limits)
        if not self._limits.has_room(self._upload.num_bytes):
            raise no_room()

    def _end_segment(self) -> None:
        assert self._segment is not None
        if self._segment.name != "file":
            name = self._segment.name or ""
            try:
                self._upload.fields[name] = self._value.decode()
            except UnicodeDecodeError:
                raise invalid(f"'{name[:100]}' is not UTF-8.", param=name[:100]) from None
        self._value.clear()

    async def _flush(self) -> None:
        data, self._unwritten = bytes(self._unwritten), bytearray()
        await asyncio.to_thread(self._write, data)


def _boundary(headers: dict[bytes, bytes]) -> str:
    require_uncompressed(headers)
    kind, options = parse_options_header(headers.get(b"content-type", b"").decode("latin-1"))
    boundary: str = options.get("boundary", "")
    if kind != "multipart/form-data" or not 1 <= len(boundary) <= 200:
        message = "A file is uploaded as `multipart/form-data` with a boundary, in the part 'file'."
        raise ApiError(415, message, code="unsupported_media_type")
    return boundary


def flush_to_disk(file: BinaryIO) -> None:
    """Return once everything written to the file would survive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def safe_filename(offered: str) -> str:
    """The last part of a client's path without control characters: a name to show, which no path is made of."""
    name = _UNSAFE.sub("", re.split(r"[/\\]", offered)[-1]).strip(". ")[:MAX_FILENAME_CHARS]
    return name or "upload.jsonl"


def no_room() -> ApiError:
    """The error where the disk space for files is used up."""
    message = "The space for files is used up here: delete files, or wait until some expire."
    return ApiError(507, message, code="storage_full", headers={"connection": "close"}, should_retry=False)


def _too_large(limits: UploadLimits) -> ApiError:
    message = f"The file is larger than {limits.max_file_bytes} bytes, the most that is taken."
    return ApiError(413, message, param="file", code="file_too_large", headers={"connection": "close"})


def _broken(detail: str) -> ApiError:
    return invalid(f"The body is not a valid multipart form: {detail}.", code="invalid_form")
