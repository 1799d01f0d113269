"""A very long prompt among chats: how long the chats stand still, and how long the prompt takes."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from itertools import pairwise
from typing import Any

from gateway.bench.scenarios.common import MEMORY, check, model_of, prompt_of, warm_up
from gateway.bench.served import Served, served
from gateway.bench.stream import Timeline, complete

_STREAMS, _CHAT_PROMPT, _CHAT_OUTPUT, _CALM_SECONDS = 16, 64, 4000, 3.0
_LONG_PROMPT, _LONG_OUTPUT = 6000, 4
_VARIANTS = {"stall_free": (), "stretch": ("stretch",), "prefill_first": ("prefill_first",)}


async def run(options: list[str]) -> dict[str, Any]:
    """The longest gap of any chat over the median gap before the prompt came, and the prompt's first token."""
    figures: dict[str, Any] = {}
    async with served(["--policy", MEMORY, *options]) as server:
        model = await model_of(server)
        await warm_up(server, model)
        for name, policies in _VARIANTS.items():
            await server.swap(*policies, MEMORY)
            figures[name] = await _long_among_chats(server, model)
    plain = figures["stall_free"]["long_prompt_time_to_first_token_seconds"]
    for figure in figures.values():
        figure["first_token_over_ungated"] = figure["long_prompt_time_to_first_token_seconds"] / plain
    return figures


async def _long_among_chats(server: Served, model: str) -> dict[str, Any]:
    """The chats go on until the long prompt is answered, however long that takes, and are broken off then."""
    rng = random.Random(6)
    timelines = [Timeline(0.0, _CHAT_OUTPUT) for _ in range(_STREAMS)]
    chats = [
        asyncio.create_task(
            complete(server.client, prompt_of(rng, _CHAT_PROMPT), _CHAT_OUTPUT, model=model, timeline=timeline)
        )
        for timeline in timelines
    ]
    while not all(timeline.arrivals for timeline in timelines):
        check(timelines)
        await asyncio.sleep(0.1)
    calm_from = time.perf_counter()
    await asyncio.sleep(_CALM_SECONDS)
    long = await complete(server.client, prompt_of(rng, _LONG_PROMPT), _LONG_OUTPUT, model=model)
    check([long, *timelines])
    for chat in chats:
        chat.cancel()
    await asyncio.gather(*chats, return_exceptions=True)
    gaps = [pair for timeline in timelines for pair in pairwise(timeline.arrivals) if pair[0] >= calm_from]
    calm = statistics.median(later - earlier for earlier, later in gaps if later < long.sent)
    longest = max(later - earlier for earlier, later in gaps if later >= long.sent)
    return {
        "decode_only_median_gap_seconds": calm,
        "longest_gap_seconds": longest,
        "longest_over_median": longest / calm,
        "long_prompt_time_to_first_token_seconds": long.time_to_first_token,
    }
