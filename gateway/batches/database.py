"""BatchDatabase: the tables of files, batches and their lines, and who may write when.

What is committed survives `kill -9` and a power cut: the connection that writes flushes at every commit (synchronous
FULL), for which results of lines are gathered, so that one flush serves all that have come meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

import aiosqlite

from gateway.storage import open_database

SCHEMA = (
    """CREATE TABLE files (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        purpose TEXT NOT NULL,
        num_bytes INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        document BLOB NOT NULL
    )""",
    "CREATE INDEX files_by_owner ON files (owner, number)",
    """CREATE TABLE batches (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        caller BLOB NOT NULL,
        input_file_id TEXT NOT NULL,
        output_lifetime_seconds INTEGER,
        result_bytes INTEGER NOT NULL DEFAULT 0,
        finished_at INTEGER,
        document BLOB NOT NULL
    )""",
    "CREATE INDEX batches_by_owner ON batches (owner, number)",
    "CREATE INDEX batches_unfinished ON batches (number) WHERE finished_at IS NULL",
    """CREATE TABLE lines (
        batch_id TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        custom_id TEXT NOT NULL,
        start INTEGER NOT NULL,
        num_bytes INTEGER NOT NULL,
        result BLOB,
        succeeded INTEGER,
        PRIMARY KEY (batch_id, number)
    )""",
)

# What a row costs beside its content, so that empty files and batches come to an end too.
FILE_OVERHEAD_BYTES, BATCH_OVERHEAD_BYTES = 4096, 32_768


class BatchDatabase:
    """Two connections to one file: reads see what is committed, writes go one transaction after the other."""

    def __init__(self, reading: aiosqlite.Connection, writing: aiosqlite.Connection) -> None:
        self._reading = reading
        self._writing = writing
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> BatchDatabase:
        """Open the file, made where there is none; raises what `open_database` raises."""
        writing = await open_database(path, SCHEMA)
        await writing.execute("PRAGMA synchronous = FULL")
        return cls(await open_database(path, SCHEMA), writing)

    async def close(self) -> None:
        """Close both connections."""
        await self._reading.close()
        await self._writing.close()

    async def rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """The rows that a query gives."""
        # In one step of the connection's thread. A query left open between two would keep the connection at what was
        # committed when it began, and so hide later commits from whoever else reads.
        return list(await self._reading.execute_fetchall(statement, values))

    async def row(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """The first of them, if there is any."""
        return next(iter(await self.rows(statement, *values)), None)

    async def used_bytes(self) -> int:
        """Disk space of everything that is kept, results of unfinished batches included."""
        row = await self.row(
            "SELECT (SELECT COALESCE(SUM(num_bytes + ?), 0) FROM files)"
            " + (SELECT COALESCE(SUM(result_bytes + ?), 0) FROM batches)",
            FILE_OVERHEAD_BYTES,
            BATCH_OVERHEAD_BYTES,
        )
        assert row is not None
        return int(row[0])

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction, None]:
        """All or nothing of what is written inside."""
        async with self._lock:
            try:
                await self._writing.execute("BEGIN IMMEDIATE")
                yield Transaction(self._writing)
                await self._writing.execute("COMMIT")
            except BaseException:
                # Statements run in order in a thread, also those whose waiter was cancelled: this one comes last, and
                # finds nothing to undo where that was the COMMIT.
                with contextlib.suppress(sqlite3.Error):
                    await self._writing.execute("ROLLBACK")
                raise


class Transaction:
    """What may be done inside a transaction."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def run(self, statement: str, *values: Any) -> int:
        """Run a statement; the number of rows that it changed."""
        async with self._connection.execute(statement, values) as cursor:
            return cursor.rowcount

    async def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run a statement for each of the rows; the number of rows that all of them changed."""
        async with self._connection.executemany(statement, rows) as cursor:
            return cursor.rowcount

    async def row(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """The first row that a query gives."""
        return next(iter(await self._connection.execute_fetchall(statement, values)), None)
