"""Embedded SQLite: where the gateway keeps what must outlive it.

Each user of it has a file of its own in the data directory, named after what is in it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import aiosqlite
from platformdirs import user_data_path

from core_engine import ConfigurationError

BUSY_SECONDS = 10.0  # how long a statement waits for another process that writes
_ATTEMPT_SECONDS = 0.05


def data_directory(given: str | None) -> Path:
    """The directory for data, made where there is none and closed to other users; `given` None is the user's own.

    Raises ConfigurationError where it can't be made or written.
    """
    directory = user_data_path("jitney") if given is None else Path(given)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error.strerror) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _unusable(directory, "it can't be written")
    return directory


async def open_database(path: Path, schema_statements: Sequence[str]) -> aiosqlite.Connection:
    """Open a database, made where there is none, and bring its tables up to date. The caller closes it.

    `schema_statements` only ever grows at its end: the file remembers how many of them it has seen, and the rest is
    run, all or nothing. Raises ConfigurationError where the file is damaged, of a newer version or out of reach.

    The connection commits every statement by itself, so that coroutines may share it; whoever needs several
    statements in one transaction opens a connection of its own for that. Who shares it reads by `execute_fetchall`: a
    query that one of them leaves open would keep all of them at what was committed when it began. What is committed
    survives `kill -9` of this process; a power cut may take the last commits, but never leaves half of one (WAL,
    synchronous NORMAL).
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite itself would leave it readable to others
        connection = await aiosqlite.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(path, str(error)) from error
    try:
        await _write_ahead(connection)
        await connection.execute("PRAGMA synchronous = NORMAL")
        await connection.execute("PRAGMA foreign_keys = ON")
        await _bring_up_to_date(connection, path, schema_statements)
    except BaseException as error:
        await connection.close()
        if isinstance(error, sqlite3.Error):
            raise _unusable(path, str(error)) from error
        raise
    return connection


async def _write_ahead(connection: aiosqlite.Connection) -> None:
    """Turn the write-ahead log on; SQLite waits for no other process there, so that is done here."""
    attempts = int(BUSY_SECONDS / _ATTEMPT_SECONDS)
    for attempt in range(attempts):
        try:
            await connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == attempts - 1:
                raise
            await asyncio.sleep(_ATTEMPT_SECONDS)
        else:
            return


async def _bring_up_to_date(connection: aiosqlite.Connection, path: Path, statements: Sequence[str]) -> None:
    await connection.execute("BEGIN IMMEDIATE")  # of two processes that open the file at once, one waits
    async with connection.execute("PRAGMA user_version") as cursor:
        row = await cursor.fetchone()
    version = 0 if row is None else int(row[0])
    if version > len(statements):
        raise _unusable(path, "a newer version of this program wrote it")
    for statement in statements[version:]:
        await connection.execute(statement)
    await connection.execute(f"PRAGMA user_version = {len(statements)}")
    await connection.execute("COMMIT")


def _unusable(path: Path, reason: str | None) -> ConfigurationError:
    return ConfigurationError(f"can't use {path}: {reason}; choose another directory with --data-dir")
