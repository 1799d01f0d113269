"""Time of one decode iteration against running sequences and against context, on the model of this process."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.loading import load_executor, prepare_model

_RUNNING = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CONTEXT = (128, 256, 512, 1024, 2048, 4096, 8191)
_FEW_TOKENS, _FEW_SEQUENCES = 128, 8


def iteration_costs(
    config: EngineConfig, repeats: int = 5, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Two series: 1 to 256 sequences at 128 tokens of context, and 8 sequences at 128 to 8,191.

    Each point has the median seconds of an iteration and the bytes of keys and values it reads. What is
    cached is not computed first, only written: attention takes as long over any numbers.
    """
    clock = MonotonicClock()
    executor = load_executor(config, prepare_model(config))
    spec = executor.spec

    def point(running: int, context: int) -> dict[str, Any]:
        driver = HandDriver(spec)
        sequences = [driver.sequence([1] * (context + 1)) for _ in range(running)]
        for sequence in sequences:
            sequence.num_computed_tokens = context
        batch = driver.bind([(sequence, 1) for sequence in sequences])
        # Copied onto itself, each block is written: memory that nobody wrote is one page of zeros, read from a cache.
        batch.block_copies = [(block, block) for sequence in sequences for block in sequence.block_table]
        executor.collect(executor.submit(batch))
        batch.block_copies = []
        seconds = []
        for _ in range(repeats):
            began = clock.now()
            executor.collect(executor.submit(batch))
            seconds.append(clock.now() - began)
        progress(f"{running} sequences of {context} tokens")
        return {
            "running": running,
            "context_tokens": context,
            "seconds": statistics.median(seconds),
            "kv_bytes": running * context * spec.kv_bytes_per_token,
        }

    room = spec.num_blocks * spec.block_size
    by_running = [point(n, _FEW_TOKENS) for n in _RUNNING if n * (_FEW_TOKENS + spec.block_size) <= room]
    by_context = [
        point(_FEW_SEQUENCES, tokens)
        for tokens in _CONTEXT
        if tokens < spec.max_model_len and _FEW_SEQUENCES * (tokens + spec.block_size) <= room
    ]
    return {
        "workload": "iteration",
        "model": spec.name,
        "dtype": spec.dtype,
        "weight_bytes": spec.weight_bytes,
        "kv_bytes_per_token": spec.kv_bytes_per_token,
        "by_running": by_running,
        "by_context": by_context,
        "growth": describe_growth(by_running, by_context, spec.weight_bytes, spec.kv_bytes_per_token),
    }


def describe_growth(
    by_running: list[dict[str, Any]], by_context: list[dict[str, Any]], weight_bytes: int, kv_bytes_per_token: int
) -> str:
    """What the two series say, in words. Raises IndexError for an empty one."""
    few, many = by_running[0], by_running[-1]
    flat = [point["running"] for point in by_running if point["seconds"] <= 1.25 * few["seconds"]][-1]
    more = (many["seconds"] - few["seconds"]) / max(1, many["running"] - few["running"])
    short, long = by_context[0], by_context[-1]
    longer = (long["seconds"] - short["seconds"]) / max(1, long["context_tokens"] - short["context_tokens"])
    return (
        f"Time: from {few['running']} to {many['running']} sequences an iteration grows from "
        f"{1e3 * few['seconds']:.1f} to {1e3 * many['seconds']:.1f} ms, within a quarter of the first up to {flat} "
        f"and by {1e3 * more:.2f} ms a sequence on the whole; from {short['context_tokens']} to "
        f"{long['context_tokens']} tokens of context of {short['running']} sequences it grows from "
        f"{1e3 * short['seconds']:.1f} to {1e3 * long['seconds']:.1f} ms, by {1e6 * longer / short['running']:.2f} ms "
        f"for 1,000 tokens of one of them. Memory: keys and values grow in proportion to both, by "
        f"{kv_bytes_per_token:,} bytes a token of each sequence, while the weights stay at {weight_bytes / 1e6:,.0f} "
        f"MB, which is what {weight_bytes / kv_bytes_per_token:,.0f} tokens take."
    )
