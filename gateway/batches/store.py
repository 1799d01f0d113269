"""BatchStore: batches and their lines in the database, and every change that they go through.

A batch is one document, as clients see it, beside the columns that queries need. A result is committed together with
the count that it raises, and only where its line has none yet: so each line counts once, however often it ran.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import msgspec

from core_engine import Caller
from gateway.batches.database import BatchDatabase, Transaction
from gateway.errors import ApiError, invalid
from gateway.protocol.batches import (
    FINAL,
    BatchErrors,
    BatchObject,
    BatchRequest,
    BatchUsage,
    RequestCounts,
    Status,
)

WINDOW_SECONDS = 24 * 3600
MAX_UNFINISHED = 64  # of one owner
_CHUNK_LINES = 256
_CHUNK_RESULTS = 32  # each may be large


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A line of an input file: its number there, counted from 1, and where its bytes are."""

    number: int
    custom_id: str
    start: int
    num_bytes: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a line: `entry` is its line in the output or in the error file."""

    number: int
    succeeded: bool
    entry: bytes
    usage: BatchUsage = BatchUsage()


class Unfinished(msgspec.Struct, frozen=True):
    """A batch that has not ended, with what it needs for its end and clients don't see."""

    batch: BatchObject
    caller: Caller
    output_lifetime_seconds: int | None


class BatchStore:
    """Reads and changes batches; an owner never learns of the batches of another."""

    def __init__(self, database: BatchDatabase) -> None:
        self._database = database

    async def create(self, request: BatchRequest, caller: Caller) -> Unfinished:
        """Take a batch in; a 400 where the caller has no such file, a 429 with too many that haven't ended."""
        now = int(time.time())
        batch = BatchObject(
            id=f"batch_{uuid.uuid4().hex}",
            endpoint=request.endpoint,
            input_file_id=request.input_file_id,
            created_at=now,
            expires_at=now + WINDOW_SECONDS,
            metadata=request.metadata,
        )
        owner = caller.tenant
        lifetime_seconds = request.output_expires_after.seconds if request.output_expires_after else None
        async with self._database.transaction() as transaction:
            if not await transaction.row(
                "SELECT 1 FROM files WHERE id = ? AND owner = ? AND purpose = 'batch' AND expires_at > ?",
                request.input_file_id,
                owner,
                now,
            ):
                message = f"There is no file '{request.input_file_id}' with the purpose 'batch'."
                raise invalid(message, param="input_file_id", code="file_not_found")
            unfinished = await transaction.row(
                "SELECT COUNT(*) FROM batches WHERE owner = ? AND finished_at IS NULL", owner
            )
            assert unfinished is not None
            if unfinished[0] >= MAX_UNFINISHED:
                message = f"{MAX_UNFINISHED} of your batches have not ended, which is the limit."
                raise ApiError(429, message, code="batch_limit", retry_after_seconds=60)
            await transaction.run(
                "INSERT INTO batches (id, owner, caller, input_file_id, output_lifetime_seconds, document)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                batch.id,
                owner,
                msgspec.json.encode(caller),
                batch.input_file_id,
                lifetime_seconds,
                msgspec.json.encode(batch),
            )
        return Unfinished(batch, caller, lifetime_seconds)

    async def get(self, batch_id: str, owner: str) -> BatchObject:
        """The batch; a 404 where this owner has none of that id."""
        row = await self._database.row("SELECT document FROM batches WHERE id = ? AND owner = ?", batch_id, owner)
        if row is None:
            raise ApiError(404, f"No batch found with id '{batch_id[:100]}'.", param="id", code="batch_not_found")
        return msgspec.json.decode(row[0], type=BatchObject)

    async def page(self, owner: str, *, after: str | None, limit: int) -> list[BatchObject]:
        """At most `limit` batches, the latest first; a 400 where `after` is none of theirs."""
        start = await self._database.row("SELECT number FROM batches WHERE id = ? AND owner = ?", after, owner)
        if after is not None and start is None:
            raise invalid(f"There is no batch '{after[:100]}'.", param="after")
        rows = await self._database.rows(
            "SELECT document FROM batches WHERE owner = ? AND (? IS NULL OR number < ?) ORDER BY number DESC LIMIT ?",
            owner,
            after,
            start and start[0],
            limit,
        )
        return [msgspec.json.decode(row[0], type=BatchObject) for row in rows]

    async def unfinished(self) -> list[Unfinished]:
        """Every batch that has not ended, oldest first."""
        rows = await self._database.rows(
            "SELECT document, caller, output_lifetime_seconds FROM batches WHERE finished_at IS NULL ORDER BY number"
        )
        return [
            Unfinished(
                msgspec.json.decode(document, type=BatchObject), msgspec.json.decode(caller, type=Caller), seconds
            )
            for document, caller, seconds in rows
        ]

    async def cancel(self, batch_id: str, owner: str) -> BatchObject:
        """Begin to cancel, or leave a batch as it is that can't be any more; a 404 as `get`."""
        await self.get(batch_id, owner)
        async with self._database.transaction() as transaction:
            batch = await self.read(transaction, batch_id)
            if batch.status not in {"validating", "in_progress"}:
                return batch
            return await self.change(transaction, batch, "cancelling")

    async def begin(self, batch_id: str, model: str, lines: Iterable[Line]) -> BatchObject:
        """Take note of the lines of a valid input file, unless the batch was cancelled meanwhile."""
        async with self._database.transaction() as transaction:
            batch = await self.read(transaction, batch_id)
            if batch.status != "validating":
                return batch
            rows = [(batch_id, line.number, line.custom_id, line.start, line.num_bytes) for line in lines]
            await transaction.run_many(
                "INSERT INTO lines (batch_id, number, custom_id, start, num_bytes) VALUES (?, ?, ?, ?, ?)", rows
            )
            return await self.change(
                transaction, batch, "in_progress", model=model, request_counts=RequestCounts(total=len(rows))
            )

    async def fail(self, batch_id: str, errors: BatchErrors) -> BatchObject:
        """Refuse an input file, unless the batch was cancelled meanwhile."""
        async with self._database.transaction() as transaction:
            batch = await self.read(transaction, batch_id)
            if batch.status != "validating":
                return batch
            return await self.change(transaction, batch, "failed", errors=errors)

    async def finalize(self, batch_id: str) -> BatchObject:
        """Go on to the end where all lines have results or the window has passed; else leave the batch as it is."""
        async with self._database.transaction() as transaction:
            batch = await self.read(transaction, batch_id)
            is_over = not batch.request_counts.num_left or time.time() >= batch.expires_at
            if batch.status != "in_progress" or not is_over:
                return batch
            return await self.change(transaction, batch, "finalizing")

    async def record(self, batch_id: str, results: list[Result]) -> None:
        """Commit results and what they count; a line that has one already keeps it."""
        async with self._database.transaction() as transaction:
            batch = await self.read(transaction, batch_id)
            counts, usage, num_bytes = batch.request_counts, batch.usage, 0
            for result in results:
                fresh = await transaction.run(
                    "UPDATE lines SET result = ?, succeeded = ? WHERE batch_id = ? AND number = ? AND result IS NULL",
                    result.entry,
                    result.succeeded,
                    batch_id,
                    result.number,
                )
                if fresh:
                    num_bytes += len(result.entry)
                    usage += result.usage
                    counts = RequestCounts(
                        counts.total, counts.completed + result.succeeded, counts.failed + (not result.succeeded)
                    )
            await transaction.run(
                "UPDATE batches SET document = ?, result_bytes = result_bytes + ? WHERE id = ?",
                msgspec.json.encode(msgspec.structs.replace(batch, request_counts=counts, usage=usage)),
                num_bytes,
                batch_id,
            )

    async def lines_without_result(self, batch_id: str) -> AsyncGenerator[Line, None]:
        """In the order of the input file."""
        query = (
            "SELECT number, custom_id, start, num_bytes FROM lines"
            " WHERE batch_id = ? AND result IS NULL AND number > ? ORDER BY number LIMIT ?"
        )
        last = 0
        while rows := await self._database.rows(query, batch_id, last, _CHUNK_LINES):
            for row in rows:
                yield Line(*row)
            last = rows[-1][0]

    async def results(self, batch_id: str) -> AsyncGenerator[list[tuple[Line, bytes | None, bool]], None]:
        """Every line with its result, None where it has none, and whether it succeeded; some at a time, in order."""
        query = (
            "SELECT number, custom_id, start, num_bytes, result, succeeded FROM lines"
            " WHERE batch_id = ? AND number > ? ORDER BY number LIMIT ?"
        )
        last = 0
        while rows := await self._database.rows(query, batch_id, last, _CHUNK_RESULTS):
            yield [(Line(*row[:4]), row[4], bool(row[5])) for row in rows]
            last = rows[-1][0]

    async def end(self, transaction: Transaction, batch_id: str, status: Status, **changes: Any) -> None:
        """End a batch; its lines are not needed any more."""
        batch = await self.read(transaction, batch_id)
        await self.change(transaction, batch, status, **changes)
        await transaction.run("DELETE FROM lines WHERE batch_id = ?", batch_id)
        await transaction.run("UPDATE batches SET result_bytes = 0 WHERE id = ?", batch_id)

    async def remove_old(self, finished_before: int) -> None:
        """Forget batches that ended before that time (Unix seconds)."""
        async with self._database.transaction() as transaction:
            await transaction.run("DELETE FROM batches WHERE finished_at < ?", finished_before)

    async def read(self, transaction: Transaction, batch_id: str) -> BatchObject:
        """The batch, which exists, as the transaction sees it."""
        row = await transaction.row("SELECT document FROM batches WHERE id = ?", batch_id)
        assert row is not None
        return msgspec.json.decode(row[0], type=BatchObject)

    async def change(self, transaction: Transaction, batch: BatchObject, status: Status, **changes: Any) -> BatchObject:
        """Put a batch into a status, with the time of that."""
        now = int(time.time())
        changed = msgspec.structs.replace(batch, status=status, **{f"{status}_at": now}, **changes)
        await transaction.run(
            "UPDATE batches SET document = ?, finished_at = ? WHERE id = ?",
            msgspec.json.encode(changed),
            now if status in FINAL else None,
            batch.id,
        )
        return changed
