"""One mixed load under the defaults and under each profile: what each is good for, and what that costs."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from gateway.bench.figures import percentile
from gateway.bench.scenarios.common import check, model_of, prompt_of, warm_up
from gateway.bench.served import Served, served
from gateway.bench.stream import Timeline, complete
from gateway.profiles import PROFILES

_KEYS = {"bench-chat": "chat", "bench-long": "long", "bench-batch": "batch"}
_CHATS, _TURNS, _CHAT_PROMPT, _CHAT_OUTPUT = 16, 3, (32, 128), (48, 96)
_LONG_PROMPTS, _LONG_PROMPT, _LONG_OUTPUT, _LONG_EVERY_SECONDS = 2, 6000, 16, 4.0
_LINES, _LINE_PROMPT, _LINE_OUTPUT, _LINE_PRIORITY = 24, (128, 512), (64, 128), 10


async def run(options: list[str]) -> dict[str, Any]:
    """Tail latencies of the chats, and tokens a second of everything."""
    figures: dict[str, Any] = {}
    for name in ("defaults", *PROFILES):
        chosen = [] if name == "defaults" else ["--profile", name]
        async with served([*chosen, *options], keys=_KEYS) as server:
            model = await model_of(server, "bench-chat")
            await warm_up(server, model, key="bench-chat")
            figures[name] = await _mixed(server, model)
    return figures


async def _mixed(server: Served, model: str) -> dict[str, Any]:
    batch = [_batch_line(server, model, random.Random(100 + number)) for number in range(_LINES)]
    chats = [_chat(server, model, random.Random(200 + number)) for number in range(_CHATS)]
    longs = [_long(server, model, random.Random(300 + number), number) for number in range(_LONG_PROMPTS)]
    turns: list[Timeline] = []
    others: list[Timeline] = []
    num_prompt_tokens = 0
    for kind, prompt_tokens, timelines in await asyncio.gather(*batch, *chats, *longs):
        (turns if kind == "chat" else others).extend(timelines)
        num_prompt_tokens += prompt_tokens
    everything = [*turns, *others]
    check(everything)
    seconds = max(t.ended for t in everything) - min(t.sent for t in everything)
    num_output_tokens = sum(t.num_output_tokens for t in everything)
    return {
        "chat_p99_time_to_first_token_seconds": percentile([t.time_to_first_token for t in turns], 99),
        "chat_p99_time_per_output_token_seconds": percentile([t.time_per_output_token for t in turns], 99),
        "chat_p99_gap_seconds": percentile([gap for t in turns for gap in t.gaps], 99),
        "chat_longest_gap_seconds": max(gap for t in turns for gap in t.gaps),
        "output_tokens_per_second": num_output_tokens / seconds,
        "total_tokens_per_second": (num_prompt_tokens + num_output_tokens) / seconds,
        "seconds": seconds,
    }


_Part = tuple[str, int, list[Timeline]]  # kind, prompt tokens, what came back


async def _chat(server: Served, model: str, rng: random.Random) -> _Part:
    """One person, who asks again when answered."""
    prompt_tokens, turns = 0, []
    await asyncio.sleep(rng.uniform(0, 2))
    for _ in range(_TURNS):
        prompt = prompt_of(rng, rng.randint(*_CHAT_PROMPT))
        prompt_tokens += len(prompt)
        turns.append(await complete(server.client, prompt, rng.randint(*_CHAT_OUTPUT), key="bench-chat", model=model))
    return "chat", prompt_tokens, turns


async def _long(server: Served, model: str, rng: random.Random, number: int) -> _Part:
    await asyncio.sleep((number + 1) * _LONG_EVERY_SECONDS)
    prompt = prompt_of(rng, _LONG_PROMPT)
    return "long", len(prompt), [await complete(server.client, prompt, _LONG_OUTPUT, key="bench-long", model=model)]


async def _batch_line(server: Served, model: str, rng: random.Random) -> _Part:
    prompt, output = prompt_of(rng, rng.randint(*_LINE_PROMPT)), rng.randint(*_LINE_OUTPUT)
    line = await complete(server.client, prompt, output, key="bench-batch", model=model, priority=_LINE_PRIORITY)
    return "batch", len(prompt), [line]
