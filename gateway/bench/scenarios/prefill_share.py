"""The source's workload at 80 % of capacity: what two gates give to those who ride, and what that costs."""

from __future__ import annotations

import random
from typing import Any

from gateway.bench.scenarios.common import MEMORY, capacity, check, model_of, open_loop, summary, warm_up
from gateway.bench.served import served

_PROMPT, _OUTPUT = (32, 512), (1, 128)  # uniform, as in Orca's evaluation
_OFFLINE_REQUESTS, _SHARE_OF_CAPACITY, _SECONDS = 32, 0.8, 25.0
_VARIANTS = {"without": (), "prefill_share": ("prefill_share",), "stretch": ("stretch",)}


async def run(options: list[str]) -> dict[str, Any]:
    """Capacity from the offline workload, then Poisson arrivals below it, with each variant."""
    figures: dict[str, Any] = {}
    rate = 0.0
    async with served(["--policy", MEMORY, *options]) as server:
        model = await model_of(server)
        await warm_up(server, model)
        for name, policies in _VARIANTS.items():
            await server.swap(*policies, MEMORY)
            offline = await capacity(server, model, _PROMPT, _OUTPUT, _OFFLINE_REQUESTS)
            rate = rate or _SHARE_OF_CAPACITY * offline
            online = await open_loop(server, random.Random(7), rate, _SECONDS, _PROMPT, _OUTPUT, model=model)
            check(online)
            figures[name] = {"offline_requests_per_second": offline, "online": summary(online)}
    figures["online_requests_per_second"] = rate
    return figures
