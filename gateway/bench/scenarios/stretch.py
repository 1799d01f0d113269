"""A very long prompt among chats: how long the chats stand still, and how long the prompt takes."""

from __future__ import annotations

import asyncio
import random
import statistics
from itertools import pairwise
from typing import Any

from gateway.bench.scenarios.common import check, model_of, prompt_of, warm_up
from gateway.bench.served import served
from gateway.bench.stream import complete

_STREAMS, _CHAT_PROMPT, _CHAT_OUTPUT = 16, 64, 400
_LONG_PROMPT, _LONG_OUTPUT = 6000, 4
_VARIANTS = {"stall_free": (), "stretch": ("stretch",), "prefill_first": ("prefill_first",)}


async def run(options: list[str]) -> dict[str, Any]:
    """The longest gap of any chat over the median gap before the prompt came, and the prompt's first token."""
    figures: dict[str, Any] = {}
    for name, policies in _VARIANTS.items():
        chosen = [argument for policy in policies for argument in ("--policy", policy)]
        async with served([*chosen, *options]) as server:
            model = await model_of(server)
            await warm_up(server, model)
            rng = random.Random(6)
            chats = [
                asyncio.create_task(complete(server.client, prompt_of(rng, _CHAT_PROMPT), _CHAT_OUTPUT, model=model))
                for _ in range(_STREAMS)
            ]
            await asyncio.sleep(6)
            long = await complete(server.client, prompt_of(rng, _LONG_PROMPT), _LONG_OUTPUT, model=model)
            timelines = await asyncio.gather(*chats)
            check([long, *timelines])
            calm = statistics.median(
                later - earlier for t in timelines for earlier, later in pairwise(t.arrivals[32:]) if later < long.sent
            )
            longest = max(max(t.gaps[32:]) for t in timelines)
            figures[name] = {
                "decode_only_median_gap_seconds": calm,
                "longest_gap_seconds": longest,
                "longest_over_median": longest / calm,
                "long_prompt_time_to_first_token_seconds": long.time_to_first_token,
            }
    plain = figures["stall_free"]["long_prompt_time_to_first_token_seconds"]
    for figure in figures.values():
        figure["first_token_over_ungated"] = figure["long_prompt_time_to_first_token_seconds"] / plain
    return figures
