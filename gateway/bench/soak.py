"""A long load at a full pool: whether memory grows, tokens get slower, or anything fails."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.bench.figures import percentile
from gateway.bench.scenarios.common import closed_loop, model_of, warm_up
from gateway.bench.served import served

_CLIENTS = 40
_PROMPT, _OUTPUT = (16, 512), (8, 128)
_SAMPLE_SECONDS = 5.0


async def soak(
    minutes: float, options: list[str], progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Clients that never pause, for that long; figures by minute. Linux only: memory is read from /proc."""
    async with served(options) as server:
        model = await model_of(server)
        await warm_up(server, model)
        began = time.perf_counter()
        stop = asyncio.Event()
        loops = [
            asyncio.create_task(closed_loop(server, stop, random.Random(number), _PROMPT, _OUTPUT, model=model))
            for number in range(_CLIENTS)
        ]
        samples = []
        while (elapsed := time.perf_counter() - began) < 60 * minutes:
            samples.append((elapsed, *_memory_bytes(server.pid), await server.metric("vllm:kv_cache_usage_perc")))
            if len(samples) % 12 == 0:
                progress(f"{elapsed / 60:.0f} of {minutes:g} minutes")
            await asyncio.sleep(_SAMPLE_SECONDS)
        stop.set()
        timelines = [timeline for loop in await asyncio.gather(*loops) for timeline in loop]
        preemptions = await server.metric("vllm:num_preemptions_total")
    by_minute = []
    for minute in range(int(minutes)):
        ended = [t for t in timelines if minute <= (t.ended - began) / 60 < minute + 1 and t.error is None]
        paces = [t.time_per_output_token for t in ended if t.num_output_tokens > 1]
        gaps = [gap for t in ended for gap in t.gaps]
        taken = [sample for sample in samples if minute <= sample[0] / 60 < minute + 1]
        by_minute.append(
            {
                "requests": len(ended),
                "output_tokens": sum(t.num_output_tokens for t in ended),
                "time_per_output_token_seconds_p99": percentile(paces, 99),
                "gap_seconds_p99": percentile(gaps, 99),
                "gateway_bytes": max(sample[1] for sample in taken),
                "engine_bytes": max(sample[2] for sample in taken),
                "kv_usage_mean": sum(sample[3] for sample in taken) / len(taken),
            }
        )
    return {
        "minutes": by_minute,
        "requests": len(timelines),
        "errors": sum(t.error is not None for t in timelines),
        "preemptions": preemptions,
    }


def _memory_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a process, and of all its children together."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _resident_bytes(pid), sum(_resident_bytes(int(child)) for child in children)


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
