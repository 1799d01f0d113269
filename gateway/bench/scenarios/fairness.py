"""Two tenants, one with ten times the other's load: what the light one gets, beside what it gets alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from gateway.bench.scenarios.common import model_of, open_loop, summary, warm_up
from gateway.bench.served import served

_KEYS = {"bench-light": "light", "bench-heavy": "heavy"}
_LIGHT_PER_SECOND, _FACTOR, _SECONDS = 0.3, 10, 60.0
# Who arrives waits for the iteration that runs, whoever is first in rank: short ones let fairness show.
_OPTIONS = ("--token-limit", "128")
_PROMPT, _OUTPUT = (32, 256), (16, 64)


async def run(options: list[str]) -> dict[str, Any]:
    """The light tenant alone, then beside the heavy one under fcfs and under fair_share."""
    figures: dict[str, Any] = {}
    for name, policies, factor in (
        ("alone", ["fair_share"], 0),
        ("fcfs", [], _FACTOR),
        ("fair_share", ["fair_share"], _FACTOR),
    ):
        chosen = [argument for policy in policies for argument in ("--policy", policy)]
        async with served([*_OPTIONS, *chosen, *options], keys=_KEYS) as server:
            model = await model_of(server, "bench-light")
            await warm_up(server, model, key="bench-light")
            loads = [
                open_loop(
                    server,
                    random.Random(1),
                    _LIGHT_PER_SECOND,
                    _SECONDS,
                    _PROMPT,
                    _OUTPUT,
                    model=model,
                    key="bench-light",
                )
            ]
            if factor:
                rate = factor * _LIGHT_PER_SECOND
                loads.append(
                    open_loop(
                        server, random.Random(2), rate, _SECONDS, _PROMPT, _OUTPUT, model=model, key="bench-heavy"
                    )
                )
            light, *heavy = await asyncio.gather(*loads)
            figures[name] = {"light": summary(light)} | ({"heavy": summary(heavy[0])} if heavy else {})
    alone = figures["alone"]["light"]["time_to_first_token_seconds"]["p99"]
    for name in ("fcfs", "fair_share"):
        figures[f"{name}_over_alone"] = figures[name]["light"]["time_to_first_token_seconds"]["p99"] / alone
    return figures
