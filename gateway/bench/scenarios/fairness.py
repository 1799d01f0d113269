"""Two tenants, one with ten times the other's load: what the light one gets, beside what it gets alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from gateway.bench.scenarios.common import MEMORY, capacity, check, model_of, open_loop, summary, warm_up
from gateway.bench.served import Served, served
from gateway.bench.stream import Timeline

_KEYS = {"bench-light": "light", "bench-heavy": "heavy"}
_FACTOR, _SHARE_OF_CAPACITY, _SECONDS = 10, 0.8, 90.0
_PROMPT, _OUTPUT = (32, 512), (16, 64)
# Who arrives waits for the iteration that runs, whoever is first in rank: short ones let fairness show.
_OPTIONS = ("--token-limit", "128", "--policy", MEMORY)


async def run(options: list[str]) -> dict[str, Any]:
    """The light tenant alone, then beside the heavy one under fcfs and under fair_share."""
    figures: dict[str, Any] = {}
    async with served([*_OPTIONS, *options], keys=_KEYS) as server:
        model = await model_of(server, "bench-light")
        await warm_up(server, model, key="bench-light")
        rate = _SHARE_OF_CAPACITY * await capacity(server, model, _PROMPT, _OUTPUT, key="bench-heavy")
        light_rate = rate / (1 + _FACTOR)
        figures["requests_per_second"] = {"light": light_rate, "heavy": rate - light_rate}
        figures["alone"] = {"light": summary(await _load(server, model, "light", light_rate))}
        for name, policies in (("fcfs", ()), ("fair_share", ("fair_share",))):
            await server.swap(*policies, MEMORY)
            light, heavy = await asyncio.gather(
                _load(server, model, "light", light_rate), _load(server, model, "heavy", rate - light_rate)
            )
            figures[name] = {"light": summary(light), "heavy": summary(heavy)}
    alone = figures["alone"]["light"]["time_to_first_token_seconds"]["p99"]
    for name in ("fcfs", "fair_share"):
        figures[f"{name}_over_alone"] = figures[name]["light"]["time_to_first_token_seconds"]["p99"] / alone
    return figures


async def _load(server: Served, model: str, tenant: str, requests_per_second: float) -> list[Timeline]:
    """The same requests at the same moments, whenever it is called for the tenant."""
    timelines = await open_loop(
        server,
        random.Random(tenant),
        requests_per_second,
        _SECONDS,
        _PROMPT,
        _OUTPUT,
        model=model,
        key=f"bench-{tenant}",
    )
    check(timelines)
    return timelines
