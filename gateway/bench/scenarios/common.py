"""What scenarios share: prompts, loads and summaries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from gateway.bench.figures import percentiles
from gateway.bench.served import Served
from gateway.bench.stream import Timeline, complete

# Where several sets of policies get the same prompts on one server, none may be found computed: it remembers nothing.
MEMORY = "paged"
_LOWEST_ID, _HIGHEST_ID = 100, 32_000


def prompt_of(rng: random.Random, num_tokens: int) -> list[int]:
    """A prompt of random tokens, none of them special."""
    return [rng.randrange(_LOWEST_ID, _HIGHEST_ID) for _ in range(num_tokens)]


async def model_of(server: Served, key: str = "") -> str:
    """The name of the model; `key` where the server asks for one."""
    answer = await server.client.get("/v1/models", headers={"authorization": f"Bearer {key}"} if key else {})
    return str(answer.raise_for_status().json()["data"][0]["id"])


async def warm_up(server: Served, model: str, **fields: Any) -> None:
    """A few requests, so that nothing is done for the first time in a measurement."""
    rng = random.Random(99)
    warm = [complete(server.client, prompt_of(rng, 100 + 50 * i), 8, model=model, **fields) for i in range(4)]
    check(await asyncio.gather(*warm))


async def capacity(
    server: Served, model: str, prompt: tuple[int, int], output: tuple[int, int], num_requests: int = 64, **fields: Any
) -> float:
    """Requests a second, of that many that are there at once: what the rates of a load are set by."""
    rng = random.Random(0)
    wanted = [(prompt_of(rng, rng.randint(*prompt)), rng.randint(*output)) for _ in range(num_requests)]
    timelines = await asyncio.gather(*(complete(server.client, p, n, model=model, **fields) for p, n in wanted))
    check(timelines)
    return num_requests / (max(t.ended for t in timelines) - min(t.sent for t in timelines))


async def closed_loop(
    server: Served,
    stop: asyncio.Event,
    rng: random.Random,
    prompt: tuple[int, int],
    output: tuple[int, int],
    **fields: Any,
) -> list[Timeline]:
    """One client that asks again as soon as it is answered, until told to stop."""
    timelines = []
    while not stop.is_set():
        request = prompt_of(rng, rng.randint(*prompt))
        timelines.append(await complete(server.client, request, rng.randint(*output), **fields))
    return timelines


async def open_loop(
    server: Served,
    rng: random.Random,
    requests_per_second: float,
    seconds: float,
    prompt: tuple[int, int],
    output: tuple[int, int],
    **fields: Any,
) -> list[Timeline]:
    """Poisson arrivals for that long; returns when all are answered."""
    tasks = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    at = rng.expovariate(requests_per_second)
    while at < seconds:
        await asyncio.sleep(max(0.0, began + at - loop.time()))
        request = prompt_of(rng, rng.randint(*prompt))
        tasks.append(asyncio.create_task(complete(server.client, request, rng.randint(*output), **fields)))
        at += rng.expovariate(requests_per_second)
    return list(await asyncio.gather(*tasks))


def check(timelines: Sequence[Timeline]) -> None:
    """Raise RuntimeError for the first request that failed."""
    for timeline in timelines:
        if timeline.error is not None:
            raise RuntimeError(f"a request failed: {timeline.error}")


def summary(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Counts, throughput and latencies of what came back whole."""
    good = [timeline for timeline in timelines if timeline.error is None and timeline.arrivals]
    errors = sum(timeline.error is not None for timeline in timelines)
    figures: dict[str, Any] = {"requests": len(timelines), "errors": errors}
    if not good:
        return figures
    seconds = max(t.ended for t in good) - min(t.sent for t in good)
    figures["output_tokens_per_second"] = sum(t.num_output_tokens for t in good) / seconds
    latencies = {
        "time_to_first_token_seconds": [t.time_to_first_token for t in good],
        "time_per_output_token_seconds": [t.time_per_output_token for t in good if t.num_output_tokens > 1],
        "latency_seconds": [t.ended - t.sent for t in good],
    }
    for name, values in latencies.items():
        figures[name] = percentiles(values)
    return figures
