"""Batches: everything that a server keeps of files and batches, and the work on those that have not ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

from core_engine import Caller
from gateway.batches.attempt import LineRunner
from gateway.batches.database import BatchDatabase
from gateway.batches.endpoints import Counter
from gateway.batches.files import FileStore
from gateway.batches.following import Follower, Workshop
from gateway.batches.seats import Seats
from gateway.batches.store import BatchStore, Unfinished
from gateway.protocol.batches import BatchObject, BatchRequest

logger = logging.getLogger("jitney.batches")

HOUSEKEEPING_SECONDS = 600.0
SPARE_SEATS_SHARE = 8  # one seat in so many stays free, so that others than batches find one at once

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 5.0, 300.0
_DAY_SECONDS = 86_400


class Batches:
    """Files, batches, and a task for each batch that has not ended; all of them share the seats of the engine.

    A batch is left as it is when the process ends, however that happens, and taken up at the next start.
    """

    def __init__(self, counter: Counter, database: BatchDatabase, directory: Path) -> None:
        gateway = counter.gateway
        self.files = FileStore(database, directory, gateway.settings)
        self.store = BatchStore(database)
        self._gateway = gateway
        self._seats: dict[str, Seats] = {}  # by model
        self._workshop = Workshop(
            gateway.settings,
            database,
            self.files,
            self.store,
            self._seats_of,
            lambda name: gateway.find(name) is not None,
            LineRunner(counter),
        )
        self._followers: dict[str, Follower] = {}  # by batch
        self._tasks: set[asyncio.Task[None]] = set()

    def num_lines(self, model_name: str) -> tuple[int, int]:
        """Lines for a model that have a seat, and those that wait for one."""
        seats = self._seats.get(model_name)
        running = seats.num_taken if seats is not None else 0
        model = self._gateway.find(model_name)
        names = model.names if model is not None else ()
        left = sum(follower.num_lines_left for follower in list(self._followers.values()) if follower.model in names)
        return running, max(0, left - running)

    async def start(self) -> None:
        """Remove what a killed process left behind, take up what has not ended, and keep house from now on."""
        await self.files.open()
        for unfinished in await self.store.unfinished():
            self._follow(unfinished)
        self._spawn(self._keep_house())

    async def stop(self) -> None:
        """Leave everything as it is: lines without a result are run after the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def create(self, request: BatchRequest, caller: Caller) -> BatchObject:
        """Take a batch in and begin with it; raises what BatchStore.create raises."""
        # Whatever class the caller is of, a batch has time. Of a configured key, the key itself is not kept.
        caller = Caller(tenant=caller.tenant, class_name="batch", weight=caller.weight)
        unfinished = await self.store.create(request, caller)
        self._follow(unfinished)
        return unfinished.batch

    async def cancel(self, batch_id: str, owner: str) -> BatchObject:
        """Begin to cancel a batch; raises what BatchStore.cancel raises."""
        batch = await self.store.cancel(batch_id, owner)
        if batch.status == "cancelling" and batch_id in self._followers:
            self._followers[batch_id].cancelled.set()
        return batch

    def _seats_of(self, name: str) -> Seats:
        """Those of a model, under whatever name; models that went away share theirs."""
        model = self._gateway.find(name)
        key = model.name if model is not None else ""
        if key not in self._seats:
            self._seats[key] = Seats(lambda: self._room(key))
        return self._seats[key]

    def _room(self, name: str) -> int:
        """How many more lines may board.

        Lines wait here, not in the engine's queue: whoever else comes finds nobody before them there, whatever the
        policies in force. So a line takes one of the seats that nobody has, and not the last of them.
        """
        model = self._gateway.find(name)
        if model is None or model.client.info is None:
            return 0
        limit = model.client.info.config.sequence_limit
        taken = max(model.activity.num_active, self._seats[name].num_taken)
        return limit - limit // SPARE_SEATS_SHARE - taken

    def _follow(self, unfinished: Unfinished) -> None:
        batch_id = unfinished.batch.id
        follower = self._followers[batch_id] = Follower(self._workshop, unfinished)
        self._spawn(self._see_through(batch_id, follower))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, batch_id: str, follower: Follower) -> None:
        pause_seconds = _FIRST_RETRY_SECONDS
        while True:
            try:
                await follower.follow()
                break
            except Exception:  # a full disk, and whatever else: it is our fault, not the batch's
                logger.exception("batch %s is held up; the next try comes in %g s", batch_id, pause_seconds)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_RETRY_SECONDS)
        del self._followers[batch_id]

    async def _keep_house(self) -> None:
        while True:
            try:
                await self.files.remove_expired()
                await self.store.remove_old(
                    int(time.time() - self._gateway.settings.file_retention_days * _DAY_SECONDS)
                )
            except (OSError, sqlite3.Error):
                logger.exception("expired files could not be removed")
            await asyncio.sleep(HOUSEKEEPING_SECONDS)


@contextlib.asynccontextmanager
async def open_batches(counter: Counter, directory: Path) -> AsyncGenerator[Batches | None, None]:
    """What is in the directory, at work; None where another process is at work on it. Raises ConfigurationError."""
    lock = os.open(directory / "batches.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        logger.warning("files and batches are off: another server uses %s; choose another with --data-dir", directory)
        yield None
        return
    try:
        database = await BatchDatabase.open(directory / "batches.sqlite")
        try:
            batches = Batches(counter, database, directory)
            counter.gateway.telemetry.watch_batches(batches.num_lines)
            await batches.start()
            try:
                yield batches
            finally:
                await batches.stop()
        finally:
            await database.close()
    finally:
        os.close(lock)
