"""FileStore: files on disk, each with a row that says whose it is and how long it is kept.

A file exists once its row is committed, and its content, flushed, is in place before that. Content without a row,
left behind where the process ended in between, is removed at the next start.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import msgspec
from litestar.types import Receive

from core_engine import Overloaded, checked
from gateway.batches.database import FILE_OVERHEAD_BYTES, BatchDatabase, Transaction
from gateway.batches.upload import UploadLimits, no_room, receive_upload
from gateway.errors import ApiError, invalid
from gateway.protocol.files import INPUT_PURPOSE, ExpiresAfter, FileObject
from gateway.settings import GatewaySettings

MAX_UPLOADS = 32  # at once
UPLOAD_SECONDS = 3600.0  # for one of them

_DAY_SECONDS = 86_400
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FileStore:
    """Keeps files under `directory`; an owner never learns of the files of another."""

    def __init__(self, database: BatchDatabase, directory: Path, settings: GatewaySettings) -> None:
        self._database = database
        self._content = directory / "files"
        self._incoming = directory / "incoming"
        self._settings = settings
        self._incoming_bytes: dict[object, int] = {}

    async def open(self) -> None:
        """Make the directories, and remove what a process that was killed left behind."""
        for directory in (self._content, self._incoming):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = {row[0] for row in await self._database.rows("SELECT id FROM files")}
        await asyncio.to_thread(self._remove_strays, known)

    def _remove_strays(self, known: set[str]) -> None:
        for path in (*self._incoming.iterdir(), *self._content.iterdir()):
            if path.parent == self._incoming or path.name not in known:
                path.unlink(missing_ok=True)

    async def receive(self, headers: Iterable[tuple[bytes, bytes]], receive: Receive, owner: str) -> FileObject:
        """Take an upload in; raises what `receive_upload` raises, and a 400 for another purpose."""
        if len(self._incoming_bytes) >= MAX_UPLOADS:
            message = f"{MAX_UPLOADS} files are being uploaded, which is the limit."
            raise Overloaded(message, "upload_limit", retry_after_seconds=5.0)
        this = object()
        self._incoming_bytes[this] = 0
        used = await self._database.used_bytes()

        def has_room(num_bytes: int) -> bool:
            self._incoming_bytes[this] = num_bytes
            return used + sum(self._incoming_bytes.values()) <= self._settings.file_storage_bytes

        limits = UploadLimits(
            self._settings.max_file_size_bytes, self._settings.body_timeout_seconds, UPLOAD_SECONDS, has_room
        )
        try:
            upload = await receive_upload(headers, receive, self._incoming, limits)
            try:
                lifetime_seconds = _check_fields(upload.fields)
                file = self.describe(upload.filename, INPUT_PURPOSE, upload.num_bytes, lifetime_seconds)
                if (
                    await self._database.used_bytes() + file.bytes + FILE_OVERHEAD_BYTES
                    > self._settings.file_storage_bytes
                ):
                    raise no_room()
                await self.put(upload.path, file)
                async with self._database.transaction() as transaction:
                    await self.insert(transaction, file, owner)
            except BaseException:
                upload.path.unlink(missing_ok=True)
                raise
        except OSError as error:
            if error.errno in _DISK_FULL:
                raise no_room() from error
            raise
        finally:
            del self._incoming_bytes[this]
        return file

    def describe(self, filename: str, purpose: str, num_bytes: int, lifetime_seconds: int | None) -> FileObject:
        """A new file; it is kept for the operator's time unless there is another."""
        now = int(time.time())
        default_seconds = int(self._settings.file_retention_days * _DAY_SECONDS)
        return FileObject(
            id=f"file-{uuid.uuid4().hex}",
            bytes=num_bytes,
            created_at=now,
            expires_at=now + (lifetime_seconds or default_seconds),
            filename=filename,
            purpose=purpose,
        )

    async def put(self, source: Path, file: FileObject) -> None:
        """Move content, flushed already, to where that of the file belongs."""
        await asyncio.to_thread(self._put, source, self.path(file.id))

    def _put(self, source: Path, target: Path) -> None:
        source.rename(target)
        directory = os.open(self._content, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    async def insert(self, transaction: Transaction, file: FileObject, owner: str) -> None:
        """Make a file exist whose content is in place."""
        await transaction.run(
            "INSERT INTO files (id, owner, purpose, num_bytes, expires_at, document) VALUES (?, ?, ?, ?, ?, ?)",
            file.id,
            owner,
            file.purpose,
            file.bytes,
            file.expires_at,
            msgspec.json.encode(file),
        )

    def path(self, file_id: str) -> Path:
        """Where the content of an existing file is."""
        return self._content / file_id

    def new_path(self) -> Path:
        """Where content can be written until it is put in its place."""
        return self._incoming / uuid.uuid4().hex

    async def get(self, file_id: str, owner: str) -> FileObject:
        """The file; a 404 where this owner has none of that id, or it has expired."""
        row = await self._database.row(
            "SELECT document FROM files WHERE id = ? AND owner = ? AND expires_at > ?", file_id, owner, int(time.time())
        )
        if row is None:
            raise ApiError(404, f"No such File object: '{file_id[:100]}'.", param="id", code="file_not_found")
        return msgspec.json.decode(row[0], type=FileObject)

    async def page(
        self, owner: str, *, after: str | None, limit: int, descending: bool, purpose: str | None
    ) -> list[FileObject]:
        """At most `limit` files in the order they were made; a 400 where `after` is none of theirs."""
        start = await self._database.row("SELECT number FROM files WHERE id = ? AND owner = ?", after, owner)
        if after is not None and start is None:
            raise invalid(f"There is no file '{after[:100]}'.", param="after")
        comparison, order = ("<", "DESC") if descending else (">", "ASC")
        rows = await self._database.rows(
            f"SELECT document FROM files WHERE owner = ? AND expires_at > ? AND (? IS NULL OR purpose = ?)"  # noqa: S608 - two constants
            f" AND (? IS NULL OR number {comparison} ?) ORDER BY number {order} LIMIT ?",
            owner,
            int(time.time()),
            purpose,
            purpose,
            after,
            start and start[0],
            limit,
        )
        return [msgspec.json.decode(row[0], type=FileObject) for row in rows]

    async def delete(self, file_id: str, owner: str) -> None:
        """Remove a file; a 404 as `get`, a 409 while a batch reads it."""
        await self.get(file_id, owner)
        async with self._database.transaction() as transaction:
            in_use = await transaction.row(
                "SELECT id FROM batches WHERE input_file_id = ? AND finished_at IS NULL", file_id
            )
            if in_use is not None:
                message = f"The file is the input of the batch '{in_use[0]}', which has not ended: cancel that first."
                raise ApiError(409, message, param="id", code="file_in_use", should_retry=False)
            await transaction.run("DELETE FROM files WHERE id = ?", file_id)
        self.path(file_id).unlink(missing_ok=True)

    async def remove_expired(self) -> None:
        """Remove files whose time is over and that no unfinished batch reads."""
        expired = await self._database.rows(
            "SELECT id FROM files WHERE expires_at <= ?"
            " AND id NOT IN (SELECT input_file_id FROM batches WHERE finished_at IS NULL)",
            int(time.time()),
        )
        for (file_id,) in expired:
            async with self._database.transaction() as transaction:
                await transaction.run("DELETE FROM files WHERE id = ?", file_id)
            self.path(file_id).unlink(missing_ok=True)


def _check_fields(fields: dict[str, str]) -> int | None:
    """Check what came with an upload; the lifetime that it asks for, in seconds."""
    purpose = fields.get("purpose")
    if purpose is None:
        raise invalid("Missing required parameter: 'purpose'.", "purpose", "missing_required_parameter")
    if purpose != INPUT_PURPOSE:
        raise invalid(f"'purpose' is '{purpose[:100]}', but files are for batches here: '{INPUT_PURPOSE}'.", "purpose")
    given = {
        name: fields[f"expires_after[{name}]"] for name in ("anchor", "seconds") if f"expires_after[{name}]" in fields
    }
    if not given:
        return None
    try:
        return checked(given, ExpiresAfter, strict=False).seconds
    except msgspec.ValidationError as error:
        raise invalid(f"Invalid value for 'expires_after': {error}.", param="expires_after") from None
