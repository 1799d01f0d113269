"""A pool that is far too small: with `kv_feedback` fewer sequences board, and fewer are thrown out again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from gateway.bench.scenarios.common import check, model_of, prompt_of, summary, warm_up
from gateway.bench.served import served
from gateway.bench.stream import complete

_SEQUENCES, _ROOM_FOR, _REQUESTS = 32, 4, 96
_PROMPT, _OUTPUT, _BLOCK_SIZE = 128, 192, 16
_KV_BYTES_PER_TOKEN = 23_040  # of the default model in bfloat16


async def run(options: list[str]) -> dict[str, Any]:
    """The same requests at once, without and with the feedback."""
    tokens = _ROOM_FOR * (_PROMPT + _OUTPUT)
    common = [
        *("--policy", "paged:headroom=0", "--kv-memory", str(tokens * _KV_BYTES_PER_TOKEN)),
        *("--block-size", str(_BLOCK_SIZE), "--sequence-limit", str(_SEQUENCES)),
    ]
    figures: dict[str, Any] = {}
    for name, policies in (("without", []), ("kv_feedback", ["--policy", "kv_feedback"])):
        async with served([*common, *policies, *options]) as server:
            model = await model_of(server)
            await warm_up(server, model)
            before = await server.metric("vllm:num_preemptions_total")
            rng = random.Random(5)
            timelines = await asyncio.gather(
                *(complete(server.client, prompt_of(rng, _PROMPT), _OUTPUT, model=model) for _ in range(_REQUESTS))
            )
            check(timelines)
            preemptions = await server.metric("vllm:num_preemptions_total") - before
            figures[name] = summary(timelines) | {"preemptions": preemptions}
    return figures
