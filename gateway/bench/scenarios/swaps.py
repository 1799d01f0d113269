"""Policies are swapped under load: nobody loses a request, and the texts stay what they were."""

from __future__ import annotations

import asyncio
import random
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from gateway.bench.scenarios.common import check, model_of, prompt_of, warm_up
from gateway.bench.served import Served, served
from gateway.bench.stream import Timeline, complete

_STREAMS, _TEXTS, _SWAPS = 32, 8, 20
_SETS = (("stall_free",), ("orca",), ("fair_share",), ("priority",))
_FAULTY = '''"""A policy that raises after 50 iterations."""

from core_engine.hookspecs import NoOptions, hookimpl


class Faulty:
    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options, seed):
        self.asked = 0

    @hookimpl
    def rank_sequences(self):
        self.asked += 1
        if self.asked > 50:
            raise RuntimeError("as told")
'''


async def run(options: list[str]) -> dict[str, Any]:
    """Texts alone, then the same requests under swaps, then under a policy that turns faulty."""
    with tempfile.TemporaryDirectory() as directory:
        _install_faulty(Path(directory))
        async with served(["--dtype", "float32", *options], plugins=Path(directory)) as server:
            model = await model_of(server)
            await warm_up(server, model)
            rng = random.Random(0)
            requests = [(prompt_of(rng, rng.randint(32, 256)), rng.randint(16, 64)) for _ in range(_TEXTS)]
            alone = [await complete(server.client, prompt, length, model=model) for prompt, length in requests]
            check(alone)
            requests *= _STREAMS // _TEXTS
            swapped, history = await _under_swaps(server, model, requests)
            before_faulty = len(history)
            await server.swap("bench_faulty")
            faulty = await asyncio.gather(*(complete(server.client, p, n, model=model) for p, n in requests))
            events = (await server.history())[before_faulty:]
    return {
        "swaps": sum(event["kind"] == "adopted" for event in history),
        "versions_rise_by_one": _rise(history),
        "requests": len(swapped),
        "errors": sum(timeline.error is not None for timeline in swapped),
        "equal_texts": _share_equal(alone, swapped),
        "faulty": {
            "requests": len(faulty),
            "errors": sum(timeline.error is not None for timeline in faulty),
            "equal_texts": _share_equal(alone, faulty),
            "events": [event["kind"] for event in events],
        },
    }


async def _under_swaps(
    server: Served, model: str, requests: list[tuple[list[int], int]]
) -> tuple[list[Timeline], list[dict[str, Any]]]:
    done = asyncio.Event()
    timelines: list[Timeline] = []

    async def client(prompt: list[int], num_tokens: int) -> None:
        while not done.is_set():
            timelines.append(await complete(server.client, prompt, num_tokens, model=model))

    clients = [asyncio.create_task(client(prompt, length)) for prompt, length in requests]
    for number in range(_SWAPS):
        await asyncio.sleep(1.0)
        await server.swap(*_SETS[number % len(_SETS)])
    done.set()
    await asyncio.gather(*clients)
    return timelines, await server.history()


def _share_equal(alone: list[Timeline], others: list[Timeline]) -> float:
    """Of the others, the share whose text is one of those that were given alone."""
    texts = {timeline.text for timeline in alone}
    return sum(timeline.text in texts for timeline in others) / len(others)


def _rise(history: list[dict[str, Any]]) -> bool:
    versions = [event["version"] for event in history if event["kind"] in ("adopted", "rolled_back")]
    return all(later == earlier + 1 for earlier, later in pairwise(versions))


def _install_faulty(directory: Path) -> None:
    (directory / "bench_faulty.py").write_text(_FAULTY)
    metadata = directory / "bench_faulty-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bench_faulty\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[jitney.policies]\nbench_faulty = bench_faulty:Faulty\n")
