"""Urgent requests go first, and the least urgent still get their minimum service."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from gateway.bench.scenarios.common import check, closed_loop, model_of, prompt_of, summary, warm_up
from gateway.bench.served import served
from gateway.bench.stream import complete

_SEATS = 16
_INTERACTIVE, _BATCH = -10, 10
_LONG_OUTPUT = 1000


async def run(options: list[str]) -> dict[str, Any]:
    """An interactive request into a batch flood, with and without `priority`; then the long batch request."""
    figures: dict[str, Any] = {}
    for name, policies in (("fcfs", []), ("priority", ["--policy", "priority"])):
        async with served(["--sequence-limit", str(_SEATS), *policies, *options]) as server:
            model = await model_of(server)
            await warm_up(server, model)
            stop, rng = asyncio.Event(), random.Random(3)
            flood = [
                asyncio.create_task(closed_loop(server, stop, rng, (32, 128), (64, 128), model=model, priority=_BATCH))
                for _ in range(3 * _SEATS)
            ]
            await asyncio.sleep(8)
            urgent = []
            for _ in range(8):
                urgent.append(await complete(server.client, prompt_of(rng, 64), 16, model=model, priority=_INTERACTIVE))
                await asyncio.sleep(0.5)
            stop.set()
            await asyncio.gather(*flood)
            check(urgent)
            figures[name] = {"interactive": summary(urgent)}
    figures["long_batch"] = await _long_batch(options)
    return figures


async def _long_batch(options: list[str]) -> dict[str, Any]:
    """1,000 tokens of the lowest class, alone and under an endless interactive flood."""
    async with served(["--sequence-limit", str(_SEATS), "--policy", "priority", *options]) as server:
        model = await model_of(server)
        await warm_up(server, model)
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
