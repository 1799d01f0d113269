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
    cached is not computed first: attention takes as long over zeros.
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
        seconds = []
        for _ in range(1 + repeats):
            began = clock.now()
            executor.collect(executor.submit(batch))
            seconds.append(clock.now() - began)
        progress(f"{running} sequences of {context} tokens")
        return {
            "running": running,
            "context_tokens": context,
            "seconds": statistics.median(seconds[1:]),
            "kv_bytes": running * context * spec.kv_bytes_per_token,
        }

    room = spec.num_blocks * spec.block_size
    return {
        "workload": "iteration",
        "model": spec.name,
        "dtype": spec.dtype,
        "by_running": [point(n, _FEW_TOKENS) for n in _RUNNING if n * (_FEW_TOKENS + spec.block_size) <= room],
        "by_context": [
            point(_FEW_SEQUENCES, tokens)
            for tokens in _CONTEXT
            if tokens < spec.max_model_len and _FEW_SEQUENCES * (tokens + spec.block_size) <= room
        ],
    }
