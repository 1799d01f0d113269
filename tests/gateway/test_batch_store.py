"""What the tables of batches show, whoever else reads or writes at the same time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core_engine import Caller
from gateway.batches.database import BatchDatabase
from gateway.batches.files import FileStore
from gateway.batches.store import BatchStore, Line, Result
from gateway.protocol.batches import BatchObject, BatchRequest
from gateway.settings import GatewaySettings
from tests.support.interleaving import begun

CALLER = Caller(tenant="one")
LINES = [Line(number, f"line-{number}", 0, 0) for number in (1, 2)]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[BatchDatabase]:
    database = await BatchDatabase.open(tmp_path / "batches.sqlite")
    yield database
    await database.close()


@pytest.fixture
async def batch(database: BatchDatabase, tmp_path: Path) -> BatchObject:
    files = FileStore(database, tmp_path, GatewaySettings())
    file = files.describe("in.jsonl", "batch", 0, None)
    async with database.transaction() as transaction:
        await files.insert(transaction, file, CALLER.tenant)
    request = BatchRequest(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    return (await BatchStore(database).create(request, CALLER)).batch


async def test_a_read_misses_nothing_while_another_is_on_its_way(database: BatchDatabase, batch: BatchObject) -> None:
    """A client asks for its batch while the lines are written down: whoever runs them sees all of them."""
    store = BatchStore(database)
    asking = store.get(batch.id, CALLER.tenant)
    await begun(asking)
    await store.begin(batch.id, "tiny", LINES)
    assert [line async for line in store.lines_without_result(batch.id)] == LINES
    asking.close()


async def test_a_batch_with_lines_left_goes_on_to_its_end_when_its_window_has_passed_and_not_before(
    database: BatchDatabase, batch: BatchObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BatchStore(database)
    await store.begin(batch.id, "tiny", LINES)
    await store.record(batch.id, [Result(number=1, succeeded=True, entry=b"")])
    assert (await store.finalize(batch.id)).status == "in_progress"
    monkeypatch.setattr(time, "time", lambda: batch.expires_at - 1)
    assert (await store.finalize(batch.id)).status == "in_progress"
    monkeypatch.setattr(time, "time", lambda: batch.expires_at)
    assert (await store.finalize(batch.id)).status == "finalizing"


async def test_a_batch_without_lines_left_goes_on_to_its_end(database: BatchDatabase, batch: BatchObject) -> None:
    store = BatchStore(database)
    await store.begin(batch.id, "tiny", LINES)
    await store.record(batch.id, [Result(number=line.number, succeeded=line.number == 1, entry=b"") for line in LINES])
    assert (await store.finalize(batch.id)).status == "finalizing"
