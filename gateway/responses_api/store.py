"""ResponseStore: kept responses, each belonging to a tenant, for a time and within bounds."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiosqlite
import msgspec

from gateway.protocol.responses import InputItem, Response, ResponseError
from gateway.storage import open_database

logger = logging.getLogger("jitney.gateway")

SWEEP_SECONDS = 600.0
_DAY_SECONDS = 86400.0

# Triggers keep the totals, so that a bound costs a look at one row for each tenant.
_SCHEMA = (
    """CREATE TABLE responses (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, created_at REAL NOT NULL,
        running INTEGER NOT NULL, response BLOB NOT NULL, items BLOB NOT NULL,
        bytes INTEGER NOT NULL GENERATED ALWAYS AS (length(response) + length(items)) STORED
    )""",
    "CREATE INDEX responses_by_owner ON responses (owner, number)",
    "CREATE INDEX responses_by_age ON responses (created_at)",
    "CREATE TABLE totals (owner TEXT PRIMARY KEY, responses INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    """CREATE TRIGGER kept AFTER INSERT ON responses BEGIN
        INSERT INTO totals VALUES (new.owner, 1, new.bytes)
        ON CONFLICT DO UPDATE SET responses = responses + 1, bytes = bytes + new.bytes;
    END""",
    """CREATE TRIGGER changed AFTER UPDATE ON responses BEGIN
        UPDATE totals SET bytes = bytes + new.bytes - old.bytes WHERE owner = new.owner;
    END""",
    """CREATE TRIGGER dropped AFTER DELETE ON responses BEGIN
        UPDATE totals SET responses = responses - 1, bytes = bytes - old.bytes WHERE owner = old.owner;
        DELETE FROM totals WHERE owner = old.owner AND responses = 0;
    END""",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept response as JSON, with the items that it answers, those of earlier responses included."""

    response: bytes
    items: bytes


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long responses are kept, and how many at most; beyond it the tenant with the most loses its oldest."""

    retention_days: float
    max_responses: int
    max_bytes: int


class ResponseStore:
    """Keeps responses in SQLite. Whatever belongs to another owner is as if it weren't there."""

    def __init__(self, database: aiosqlite.Connection, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._database = database
        self._bounds = bounds
        self._clock = clock

    async def keep(self, owner: str, response: Response, items: list[InputItem]) -> bool:
        """Keep a response, or its newer state; False where it can't be, which the log explains."""
        try:
            await self._database.execute(
                "INSERT INTO responses (id, owner, created_at, running, response, items) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET running = excluded.running, response = excluded.response",
                (
                    response.id,
                    owner,
                    self._clock(),
                    response.status == "in_progress",
                    msgspec.json.encode(response),
                    msgspec.json.encode(items),
                ),
            )
            await self._drop_what_is_too_much()
        except sqlite3.Error:
            logger.exception("a response could not be kept")
            return False
        return True

    async def find(self, owner: str, response_id: str) -> Kept | None:
        """The response, unless there is none of this id or its time is over."""
        rows = await self._database.execute_fetchall(
            "SELECT response, items FROM responses WHERE id = ? AND owner = ? AND created_at > ?",
            (response_id, owner, self._oldest),
        )
        return next((Kept(*row) for row in rows), None)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Whether there was such a response."""
        async with self._database.execute(
            "DELETE FROM responses WHERE id = ? AND owner = ?", (response_id, owner)
        ) as cursor:
            return cursor.rowcount > 0

    async def sweep(self) -> None:
        """Drop what is older than the retention."""
        await self._database.execute("DELETE FROM responses WHERE created_at <= ?", (self._oldest,))

    async def fail_running(self) -> None:
        """Say of responses that an earlier process left running that they failed."""
        rows = await self._database.execute_fetchall("SELECT id, response FROM responses WHERE running")
        for response_id, encoded in rows:
            response = msgspec.json.decode(encoded, type=Response)
            response.status = "failed"
            response.error = ResponseError("server_error", "The server stopped while it was working on this response.")
            await self._database.execute(
                "UPDATE responses SET running = 0, response = ? WHERE id = ?",
                (msgspec.json.encode(response), response_id),
            )

    @property
    def _oldest(self) -> float:
        return self._clock() - self._bounds.retention_days * _DAY_SECONDS

    async def _drop_what_is_too_much(self) -> None:
        while await self._is_too_much():
            await self._database.execute(
                "DELETE FROM responses WHERE number = (SELECT min(number) FROM responses WHERE owner ="
                " (SELECT owner FROM totals ORDER BY bytes DESC LIMIT 1))"
            )

    async def _is_too_much(self) -> bool:
        ((num_responses, num_bytes),) = await self._database.execute_fetchall(
            "SELECT total(responses), total(bytes) FROM totals"
        )
        return bool(num_responses > self._bounds.max_responses or num_bytes > self._bounds.max_bytes)


@asynccontextmanager
async def open_store(
    path: Path, bounds: Bounds, clock: Callable[[], float] = time.time
) -> AsyncGenerator[ResponseStore, None]:
    """Open the store and sweep it now and then; raises ConfigurationError where the file can't be used."""
    database = await open_database(path, _SCHEMA)
    sweeping: asyncio.Task[None] | None = None
    try:
        await database.execute("PRAGMA secure_delete = ON")  # what was deleted is gone from the file too
        store = ResponseStore(database, bounds, clock)
        await store.fail_running()
        sweeping = asyncio.create_task(_sweep_now_and_then(store))
        yield store
    finally:
        if sweeping is not None:
            sweeping.cancel()
        await database.close()


async def _sweep_now_and_then(store: ResponseStore) -> None:
    while True:
        try:
            await store.sweep()
        except sqlite3.Error:
            logger.exception("old responses could not be dropped")
        await asyncio.sleep(SWEEP_SECONDS)
