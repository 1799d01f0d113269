"""Urgent requests go first, and the least urgent still get their minimum service."""

from __future__ import annotations

import asyncio
import random
import tempfile
from bisect import bisect
from pathlib import Path
from typing import Any

import msgspec

from core_engine.lab.journal import IterationLine, Line, RequestLine
from gateway.bench.scenarios.common import MEMORY, check, closed_loop, model_of, prompt_of, summary, warm_up
from gateway.bench.served import Served, served
from gateway.bench.stream import complete

_SEATS = 16
_INTERACTIVE, _BATCH = -10, 10
_LONG_OUTPUT = 1000


async def run(options: list[str]) -> dict[str, Any]:
    """An interactive request into a batch flood, with and without `priority`; then the long batch request."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with served(["--sequence-limit", str(_SEATS), "--policy", MEMORY, *options]) as server:
            model = await model_of(server)
            await warm_up(server, model)
            for name in ("fcfs", "priority"):
                journal = Path(directory) / f"{name}.jsonl"
                await server.swap(name, f"record:path={journal}", MEMORY)
                figures[name] = await _into_flood(server, model)
                figures[name]["iterations_waited"] = _iterations_waited(journal)
            await server.swap("priority", MEMORY)
            figures["long_batch"] = await _long_batch(server, model)
    return figures


async def _into_flood(server: Served, model: str) -> dict[str, Any]:
    stop, rng = asyncio.Event(), random.Random(3)
    flood = [
        asyncio.create_task(closed_loop(server, stop, rng, (32, 128), (64, 128), model=model, priority=_BATCH))
        for _ in range(3 * _SEATS)
    ]
    waiting = 0.0
    while waiting < _SEATS:
        await asyncio.sleep(0.5)
        waiting = await server.metric("vllm:num_requests_waiting")
    urgent = []
    for _ in range(5):
        urgent.append(await complete(server.client, prompt_of(rng, 64), 16, model=model, priority=_INTERACTIVE))
        await asyncio.sleep(0.5)
    stop.set()
    await asyncio.gather(*flood)
    check(urgent)
    return {"interactive": summary(urgent)}


def _iterations_waited(journal: Path) -> list[int]:
    """Of each interactive request, how many iterations went by without it from its arrival to its start."""
    lines = [msgspec.json.decode(line, type=Line) for line in journal.read_bytes().splitlines()]
    iterations = [line for line in lines if isinstance(line, IterationLine)]
    began = [line.started_seconds for line in iterations]
    started: dict[str, int] = {}
    for place, line in enumerate(iterations):
        for _, request_id, _ in line.started:
            started.setdefault(request_id, place)
    return [
        started[line.request_id] - bisect(began, line.arrival_seconds)
        for line in lines
        if isinstance(line, RequestLine) and line.priority == _INTERACTIVE
    ]


async def _long_batch(server: Served, model: str) -> dict[str, Any]:
    """1,000 tokens of the lowest class, alone and under an endless interactive flood."""
    rng = random.Random(4)
    alone = await complete(server.client, prompt_of(rng, 64), _LONG_OUTPUT, model=model, priority=_BATCH)
    stop = asyncio.Event()
    flood = [
        asyncio.create_task(closed_loop(server, stop, rng, (32, 128), (16, 64), model=model, priority=_INTERACTIVE))
        for _ in range(2 * _SEATS)
    ]
    await asyncio.sleep(3)
    flooded = await complete(server.client, prompt_of(rng, 64), _LONG_OUTPUT, model=model, priority=_BATCH)
    stop.set()
    await asyncio.gather(*flood)
    check([alone, flooded])
    seconds = {"alone_seconds": alone.ended - alone.sent, "flooded_seconds": flooded.ended - flooded.sent}
    return seconds | {"multiple": seconds["flooded_seconds"] / seconds["alone_seconds"]}
