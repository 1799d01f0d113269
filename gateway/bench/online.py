"""Poisson arrivals over HTTP, on any OpenAI-compatible server: latencies by the token."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import takewhile
from typing import Any

import httpx

from core_engine.lab.workloads import Arrival, poisson, requests, uniform_lengths
from gateway.bench.figures import percentile, percentiles
from gateway.bench.scenarios.common import summary
from gateway.bench.served import served
from gateway.bench.stream import Timeline, complete

_VOCAB_SIZE = 256  # of the prompts' tokens; every model has as many
_SEED = 0
_MANY_TOKENS = 16  # from here on a request says something of the gaps between tokens


async def online(
    *,
    requests_per_second: float,
    seconds: float,
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    serve_options: Sequence[str],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """The source's lengths at that rate; without `base_url`, on a server of our own."""
    async with _client(base_url, serve_options) as client:
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        if model is None:
            answer = await client.get("/v1/models", headers=headers)
            model = str(answer.raise_for_status().json()["data"][0]["id"])
        await asyncio.gather(*(complete(client, [200 + i] * 64, 8, key=api_key, model=model) for i in range(4)))
        arrivals = _arrivals(requests_per_second, seconds, model)
        progress(f"{len(arrivals)} requests in {seconds:g} s")
        timelines = await _send(client, arrivals, api_key, model)
    figures = {"workload": "online", "model": model, "requests_per_second": requests_per_second}
    return figures | summary(timelines) | _paces([t for t in timelines if t.error is None and t.arrivals])


@contextlib.asynccontextmanager
async def _client(base_url: str | None, serve_options: Sequence[str]) -> AsyncIterator[httpx.AsyncClient]:
    if base_url is None:
        async with served(serve_options) as server:
            yield server.client
        return
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=base_url, timeout=600, limits=limits) as client:
        yield client


def _arrivals(requests_per_second: float, seconds: float, model: str) -> list[Arrival]:
    wanted = requests(uniform_lengths(_SEED), seed=_SEED, vocab_size=_VOCAB_SIZE, model=model)
    return list(takewhile(lambda arrival: arrival.seconds < seconds, poisson(wanted, requests_per_second, _SEED)))


async def _send(client: httpx.AsyncClient, arrivals: list[Arrival], key: str | None, model: str) -> list[Timeline]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    tasks = []
    for arrival in arrivals:
        await asyncio.sleep(max(0.0, began + arrival.seconds - loop.time()))
        request = arrival.request
        length = request.sampling.max_tokens
        assert length is not None
        tasks.append(asyncio.create_task(complete(client, request.prompt_token_ids, length, key=key, model=model)))
    return list(await asyncio.gather(*tasks))


def _paces(timelines: list[Timeline]) -> dict[str, Any]:
    normalised = [(t.ended - t.sent) / t.num_output_tokens for t in timelines]
    gaps = [gap for t in timelines if t.num_output_tokens >= _MANY_TOKENS for gap in t.gaps]
    if not gaps:
        return {}
    return {
        "normalised_latency_seconds": {"mean": statistics.fmean(normalised), **percentiles(normalised)},
        "gap_seconds": percentiles(gaps),
        "gap_p99_over_median": percentile(gaps, 99) / percentile(gaps, 50),
    }
