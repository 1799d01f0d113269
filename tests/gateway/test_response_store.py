"""What keeps responses: for a time, within bounds, and across the end of the process."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from gateway.protocol.responses import InputItem, Response
from gateway.responses_api.store import Bounds, ResponseStore, open_store
from tests.support.interleaving import begun

DAY_SECONDS = 86400.0


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(
    path: Path, clock: Clock | None = None, *, max_responses: int = 1000, max_bytes: int = 10**9
) -> AbstractAsyncContextManager[ResponseStore]:
    bounds = Bounds(retention_days=2, max_responses=max_responses, max_bytes=max_bytes)
    return open_store(path / "responses.sqlite", bounds, clock or Clock())


def response(name: str, *, text: str = "", status: str = "completed") -> Response:
    fields = {"id": name, "created_at": 0, "model": "m", "store": True, "temperature": 1.0, "text": {}, "top_p": 1.0}
    return msgspec.convert({**fields, "instructions": text, "status": status}, Response)


async def kept(store: ResponseStore, owner: str, names: list[str]) -> list[str]:
    return [name for name in names if await store.find(owner, name) is not None]


async def test_responses_survive_the_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.keep("a", response("r", text="kept"), [InputItem(type="message")])
    async with opened(tmp_path) as store:
        found = await store.find("a", "r")
        assert found is not None
        assert msgspec.json.decode(found.response)["instructions"] == "kept"
        assert msgspec.json.decode(found.items) == [{"type": "message"}]


async def test_a_response_is_kept_while_another_is_looked_for(tmp_path: Path) -> None:
    """Two servers share what they keep: neither is held to what was there when someone began to read."""
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        assert await store.keep("a", response("first"), [])
        looking = store.find("a", "first")
        await begun(looking)
        assert await other.keep("a", response("second"), [])
        assert await kept(store, "a", ["first", "second"]) == ["first", "second"]
        assert await store.keep("a", response("third"), [])
        looking.close()


async def test_what_ran_when_the_process_died_has_failed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep("a", response("running", status="in_progress"), [])
        await store.keep("a", response("done"), [])
    async with opened(tmp_path) as store:
        statuses = {}
        for name in ("running", "done"):
            found = await store.find("a", name)
            assert found is not None
            statuses[name] = msgspec.json.decode(found.response)["status"]
        assert statuses == {"running": "failed", "done": "completed"}


async def test_responses_are_kept_for_their_time(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as store:
        await store.keep("a", response("old", text="a secret"), [])
        clock.now += DAY_SECONDS
        await store.keep("a", response("new"), [])
        clock.now += DAY_SECONDS
        assert await kept(store, "a", ["old", "new"]) == ["new"]  # before any sweep
        await store.sweep()
        assert await kept(store, "a", ["old", "new"]) == ["new"]
    assert b"a secret" not in (tmp_path / "responses.sqlite").read_bytes()


@pytest.mark.parametrize("bound", ["max_responses", "max_bytes"])
async def test_who_has_the_most_loses_the_oldest(tmp_path: Path, bound: str) -> None:
    limits = {"max_responses": 4} if bound == "max_responses" else {"max_bytes": 45_000}
    async with opened(tmp_path, **limits) as store:  # type: ignore[arg-type]
        await store.keep("small", response("s"), [])
        many = [f"r{number}" for number in range(6)]
        for name in many:
            await store.keep("big", response(name, text="x" * 10_000), [])
        assert await kept(store, "small", ["s"]) == ["s"]
        assert await kept(store, "big", many) == (many[3:] if bound == "max_responses" else many[2:])


async def test_bounds_hold_after_changes_deletions_and_a_restart(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(4)]
    async with opened(tmp_path, max_bytes=45_000) as store:
        for name in names:
            await store.keep("a", response(name), [])
        for name in names[1:]:
            await store.keep("a", response(name, text="x" * 10_000), [])
        assert await kept(store, "a", names) == names
        assert await store.delete("a", "r1")
        assert not await store.delete("a", "r1")
    async with opened(tmp_path, max_bytes=25_000) as store:
        await store.keep("a", response("last"), [])
        assert await kept(store, "a", [*names, "last"]) == ["r0", "r2", "r3", "last"]
        await store.keep("a", response("more", text="x" * 10_000), [])
        assert await kept(store, "a", [*names, "last", "more"]) == ["r3", "last", "more"]


async def test_what_cannot_be_kept_is_said_not_to_be(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with sqlite3.connect(tmp_path / "responses.sqlite") as other:
            other.execute("DROP TABLE totals")
        other.close()
        assert not await store.keep("a", response("r"), [])
