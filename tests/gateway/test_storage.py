"""Databases: made private, brought up to date, and refused with a reason where they can't be used."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import aiosqlite
import pytest

from core_engine import ConfigurationError
from gateway.storage import data_directory, open_database

SCHEMA = ("CREATE TABLE things (name TEXT PRIMARY KEY)", "CREATE TABLE parts (thing TEXT REFERENCES things)")


async def names(connection: aiosqlite.Connection) -> list[str]:
    async with connection.execute("SELECT name FROM things ORDER BY name") as cursor:
        return [row[0] for row in await cursor.fetchall()]


async def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        connection = await open_database(tmp_path / "x.sqlite", SCHEMA)
        await connection.execute("INSERT INTO things VALUES (?)", (name,))
        await connection.close()
    connection = await open_database(tmp_path / "x.sqlite", SCHEMA)
    assert await names(connection) == ["a", "b"]
    await connection.close()


async def test_a_grown_schema_keeps_what_is_there(tmp_path: Path) -> None:
    connection = await open_database(tmp_path / "x.sqlite", SCHEMA[:1])
    await connection.execute("INSERT INTO things VALUES ('a')")
    await connection.close()
    connection = await open_database(tmp_path / "x.sqlite", SCHEMA)
    await connection.execute("INSERT INTO parts VALUES ('a')")
    with pytest.raises(sqlite3.IntegrityError):
        await connection.execute("INSERT INTO parts VALUES ('nobody')")
    assert await names(connection) == ["a"]
    await connection.close()


async def test_a_schema_is_brought_up_to_date_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        await open_database(tmp_path / "x.sqlite", (*SCHEMA, "CREATE NONSENSE"))
    connection = await open_database(tmp_path / "x.sqlite", SCHEMA)
    assert await names(connection) == []
    await connection.close()


async def test_many_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    connections = await asyncio.gather(*(open_database(tmp_path / "x.sqlite", SCHEMA) for _ in range(8)))
    await asyncio.gather(
        *(c.execute("INSERT INTO things VALUES (?)", (str(number),)) for number, c in enumerate(connections))
    )
    assert len(await names(connections[0])) == 8
    for connection in connections:
        await connection.close()


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    directory = data_directory(str(tmp_path / "deep" / "data"))
    connection = await open_database(directory / "x.sqlite", SCHEMA)
    await connection.execute("INSERT INTO things VALUES ('a')")
    assert directory.stat().st_mode & 0o777 == 0o700
    files = list(directory.iterdir())
    assert len(files) > 1  # with the write-ahead log
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    await connection.close()


@pytest.mark.parametrize("content", ["damaged", "newer"])
async def test_a_file_that_cannot_be_used_is_refused_with_its_reason(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.sqlite"
    if content == "damaged":
        path.write_bytes(b"not a database" * 100)
    else:
        await (await open_database(path, SCHEMA)).close()
    with pytest.raises(ConfigurationError, match=r"x\.sqlite.*--data-dir"):
        await open_database(path, SCHEMA[:1])


def test_a_directory_that_cannot_be_made_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"file.*--data-dir"):
        data_directory(str(tmp_path / "file" / "data"))


def test_what_was_committed_survives_a_killed_process(tmp_path: Path) -> None:
    code = f"""
import asyncio, os, pathlib, signal
from gateway.storage import open_database
async def main():
    connection = await open_database(pathlib.Path({str(tmp_path / "x.sqlite")!r}), {SCHEMA!r})
    await connection.execute("INSERT INTO things VALUES ('kept')")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False)
    assert ended.returncode == -signal.SIGKILL
    with sqlite3.connect(tmp_path / "x.sqlite") as connection:
        assert connection.execute("SELECT name FROM things").fetchall() == [("kept",)]
    connection.close()
