"""The reference schedule of a workload: which rows an ideal engine would compute, iteration by iteration.

The floor of a workload is the time of the linear layers for these rows. The schedule is fixed, token limit
512, 64 sequences, decodes first, so that an engine that schedules worse can't flatter its own ratio.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.lab.measured import run_at_once
from core_engine.lab.timed import TimedExecutor
from core_engine.request import Request

_TOKEN_LIMIT, _SEQUENCE_LIMIT = 512, 64


def reference_schedule(wanted: Sequence[Request], vocab_size: int) -> list[tuple[int, int]]:
    """(rows through the model, rows through the output layer) of each iteration, all requests there at once."""
    schedule: list[tuple[int, int]] = []

    def count(rows: int, heads: int) -> float:
        schedule.append((rows, heads))
        return 1.0  # some time must go by, without which nothing would be learnt of rates

    clock = VirtualClock()
    executor = TimedExecutor(
        clock,
        count,
        name=wanted[0].model,
        vocab_size=vocab_size,
        num_sequences=max(_SEQUENCE_LIMIT, len(wanted)),
    )
    block_size = executor.spec.block_size
    config = EngineConfig(block_size=block_size, token_limit=_TOKEN_LIMIT, sequence_limit=_SEQUENCE_LIMIT, seed=0)
    run_at_once(Engine(config, executor, clock=clock), wanted, clock=clock)
    return schedule
