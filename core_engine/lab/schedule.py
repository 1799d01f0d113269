"""The reference schedule of a workload: which rows an ideal engine would compute, iteration by iteration.

The floor of a workload is the time of the linear layers for these rows. The schedule is fixed, token limit
512, 64 sequences, decodes first, so that an engine that schedules worse can't flatter its own ratio.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.lab.measured import run_at_once
from core_engine.request import Request

_TOKEN_LIMIT, _SEQUENCE_LIMIT, _BLOCK_SIZE = 512, 64, 32


def reference_schedule(wanted: Sequence[Request], vocab_size: int) -> list[tuple[int, int]]:
    """(rows through the model, rows through the output layer) of each iteration, all requests there at once."""
    clock = VirtualClock()
    executor = _Counting(clock, wanted[0].model, vocab_size, max(_SEQUENCE_LIMIT, len(wanted)))
    config = EngineConfig(block_size=_BLOCK_SIZE, token_limit=_TOKEN_LIMIT, sequence_limit=_SEQUENCE_LIMIT, seed=0)
    engine = Engine(config, executor, clock=clock)
    run_at_once(engine, wanted, clock=clock)
    return executor.rows


class _Counting:
    """An executor that computes nothing and counts rows."""

    def __init__(self, clock: VirtualClock, name: str, vocab_size: int, num_sequences: int) -> None:
        self._clock = clock
        self.rows: list[tuple[int, int]] = []
        self.spec = ModelSpec(
            name=name,
            architecture="none",
            dtype="float32",
            device="none",
            vocab_size=vocab_size,
            max_model_len=1 << 20,
            num_blocks=num_sequences * 1024,
            block_size=_BLOCK_SIZE,
            kv_bytes_per_token=1,
        )

    def submit(self, batch: Batch) -> object:
        """Count, and let time go by, without which nothing would be learnt of rates."""
        if batch.total_tokens:
            self.rows.append((batch.total_tokens, len(batch.sample_rows)))
        self._clock.advance(1.0)
        return batch

    def collect(self, handle: object) -> BatchResult:
        """The same token for all."""
        assert isinstance(handle, Batch)
        return BatchResult([1] * len(handle.sample_rows))
