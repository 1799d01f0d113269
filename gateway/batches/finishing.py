"""Finishing a batch: its results become files, in the order of its input."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from gateway.batches.attempt import unrun
from gateway.batches.database import BatchDatabase
from gateway.batches.files import FileStore
from gateway.batches.store import BatchStore, Unfinished
from gateway.batches.upload import flush_to_disk
from gateway.protocol.batches import Status
from gateway.protocol.files import OUTPUT_PURPOSE, FileObject

_UNRUN = {
    "cancelled": ("batch_cancelled", "This request was not executed: the batch was cancelled."),
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
}


async def finish(unfinished: Unfinished, database: BatchDatabase, files: FileStore, store: BatchStore) -> Status:
    """Write output and error file and end the batch, all at once; can be begun anew where the process ends in between.

    A batch whose lines all have a result is completed, unless it was cancelled; another is cancelled or expired: with
    lines left, nothing but the end of its window makes a batch `finalizing`.
    """
    owner, lifetime_seconds = unfinished.caller.tenant, unfinished.output_lifetime_seconds
    batch = await store.get(unfinished.batch.id, owner)
    ending: Status = "expired" if batch.request_counts.num_left else "completed"
    if batch.status == "cancelling":
        ending = "cancelled"
    async with contextlib.AsyncExitStack() as stack:
        output = await stack.enter_async_context(_Draft(files.new_path()))
        errors = await stack.enter_async_context(_Draft(files.new_path()))
        async for results in store.results(batch.id):
            entries = [(entry or unrun(line, *_UNRUN[ending]), succeeded) for line, entry, succeeded in results]
            await output.write([entry for entry, succeeded in entries if succeeded])
            await errors.write([entry for entry, succeeded in entries if not succeeded])
        made: dict[str, FileObject] = {}
        for field, draft in (("output", output), ("error", errors)):
            if draft.num_bytes:
                file = files.describe(f"{batch.id}_{field}.jsonl", OUTPUT_PURPOSE, draft.num_bytes, lifetime_seconds)
                await draft.flush()
                await files.put(draft.path, file)
                made[f"{field}_file_id"] = file
        async with database.transaction() as transaction:
            for file in made.values():
                await files.insert(transaction, file, owner)
            await store.end(transaction, batch.id, ending, **{field: file.id for field, file in made.items()})
    return ending


class _Draft:
    """A file that is being written; it is gone afterwards, unless it was put in its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        self._file: BinaryIO

    async def __aenter__(self) -> Self:
        self._file = await asyncio.to_thread(self.path.open, "xb")
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    async def write(self, entries: list[bytes]) -> None:
        data = b"".join(entry + b"\n" for entry in entries)
        self.num_bytes += len(data)
        if data:
            await asyncio.to_thread(self._file.write, data)

    async def flush(self) -> None:
        await asyncio.to_thread(flush_to_disk, self._file)
