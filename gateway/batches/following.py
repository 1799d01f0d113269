"""Follower: takes one batch from wherever it is to its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from gateway.batches.attempt import LineRunner
from gateway.batches.checking import InvalidInput, check_input
from gateway.batches.database import BatchDatabase
from gateway.batches.files import FileStore
from gateway.batches.finishing import finish
from gateway.batches.seats import Seats
from gateway.batches.store import BatchStore, Line, Result, Unfinished
from gateway.protocol.batches import FINAL, BatchError, BatchObject, Status
from gateway.settings import GatewaySettings

logger = logging.getLogger("jitney.batches")

MAX_UNRECORDED = 256
FULL_POLL_SECONDS = 5.0
CLOCK_POLL_SECONDS = 60.0  # timers stand still while the machine sleeps, and the clock may be set


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all followers share."""

    settings: GatewaySettings
    database: BatchDatabase
    files: FileStore
    store: BatchStore
    seats: Callable[[str], Seats]  # of the model of that name
    has_model: Callable[[str], bool]
    runner: LineRunner
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)  # one input file at a time


class Follower:
    """Follows a batch. What it does can be begun anew at any point, since every step is one transaction."""

    def __init__(self, workshop: Workshop, unfinished: Unfinished) -> None:
        self.cancelled = asyncio.Event()
        self.model: str | None = None  # once it is known
        self.num_lines_left = 0
        self._shop = workshop
        self._id = unfinished.batch.id
        self._owner = unfinished.caller.tenant
        self._unfinished = unfinished

    async def follow(self) -> None:
        """Take the batch to its end.

        Raises OSError or sqlite3.Error, also in groups, where the disk fails, and RuntimeError where lines came to an
        end without a result.
        """
        batch = await self._shop.store.get(self._id, self._owner)
        if batch.status == "validating":
            batch = await self._check(batch)
        if batch.status == "in_progress":
            self.model, self.num_lines_left = batch.model, batch.request_counts.num_left
            await self._until_ended(batch)
            batch = await self._shop.store.finalize(self._id)
            if batch.status == "in_progress":
                raise RuntimeError(f"{batch.request_counts.num_left} lines came to an end without a result")
        status: Status = batch.status
        if status not in FINAL:
            shop = self._shop
            status = await finish(self._unfinished, shop.database, shop.files, shop.store)
        logger.info("batch %s: %s", self._id, status)

    async def _check(self, batch: BatchObject) -> BatchObject:
        shop = self._shop
        path = shop.files.path(batch.input_file_id)
        try:
            async with shop.checking:
                model, lines = await asyncio.to_thread(check_input, path, batch.endpoint, shop.settings)
            if not shop.has_model(model):
                message = f"The model '{model[:100]}' does not exist here."
                raise InvalidInput([BatchError("model_not_found", message, lines[0].number, "body.model")])
        except InvalidInput as invalid:
            return await shop.store.fail(self._id, invalid.errors)
        return await shop.store.begin(self._id, model, lines)

    async def _until_ended(self, batch: BatchObject) -> None:
        """Run lines until all have results, the batch is cancelled or its time is over."""
        working = asyncio.ensure_future(self._run_lines(batch))
        cancelled = asyncio.ensure_future(self.cancelled.wait())
        try:
            ends = {working, cancelled}
            while (seconds_left := batch.expires_at - time.time()) > 0 and not any(end.done() for end in ends):
                timeout = min(seconds_left, CLOCK_POLL_SECONDS)
                await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, cancelled):
                task.cancel()
            await asyncio.gather(working, cancelled, return_exceptions=True)

    async def _run_lines(self, batch: BatchObject) -> None:
        seats = self._shop.seats(batch.model or "")
        results: asyncio.Queue[Result | None] = asyncio.Queue(MAX_UNRECORDED)
        async with asyncio.TaskGroup() as recording:
            recording.create_task(self._record(results))
            left = self._shop.store.lines_without_result(self._id)
            async with aclosing(left), asyncio.TaskGroup() as running:
                async for line in left:
                    await self._space_on_disk()
                    await seats.take(self._owner)
                    task = running.create_task(self._answer(batch, line, results))
                    # A task that is cancelled before it begins would not reach a `finally` of its own.
                    task.add_done_callback(lambda _: seats.give_back())
            await results.put(None)

    async def _answer(self, batch: BatchObject, line: Line, results: asyncio.Queue[Result | None]) -> None:
        path = self._shop.files.path(batch.input_file_id)
        await results.put(await self._shop.runner.run(batch, self._unfinished.caller, path, line))

    async def _record(self, results: asyncio.Queue[Result | None]) -> None:
        """Commit what has come, until None comes: one transaction for all that came while the last was written."""
        ended = False
        while not ended:
            gathered = [await results.get()]
            while not results.empty():
                gathered.append(results.get_nowait())
            ended = None in gathered
            await self._shop.store.record(self._id, [result for result in gathered if result is not None])
            self.num_lines_left -= len(gathered) - ended

    async def _space_on_disk(self) -> None:
        warned = False
        while await self._shop.database.used_bytes() > self._shop.settings.file_storage_bytes:
            if not warned:
                logger.warning("batch %s waits: the space for files is used up (--file-storage)", self._id)
                warned = True
            await asyncio.sleep(FULL_POLL_SECONDS)
