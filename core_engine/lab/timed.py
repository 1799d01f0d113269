"""An executor that computes nothing: each iteration takes what a function of its rows says, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from core_engine.clock import VirtualClock
from core_engine.executor import Batch, BatchResult, ModelSpec

_BLOCK_SIZE, _BLOCKS_EACH = 256, 16


class TimedExecutor:
    """Answers the same token to all, after a time that follows from the number of rows.

    `seconds(rows, heads)` is that of a pass with so many rows, idle ones included, of which `heads` go through
    the output layer; an empty batch takes `empty_seconds`. The memory is large enough for `num_sequences` of any
    length up to 4,096 tokens.
    """

    def __init__(
        self,
        clock: VirtualClock,
        seconds: Callable[[int, int], float],
        *,
        name: str,
        vocab_size: int,
        num_sequences: int,
        empty_seconds: float = 0.001,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._empty_seconds = empty_seconds
        self.spec = ModelSpec(
            name=name,
            architecture="none",
            dtype="float32",
            device="none",
            vocab_size=vocab_size,
            max_model_len=_BLOCKS_EACH * _BLOCK_SIZE,
            num_blocks=num_sequences * _BLOCKS_EACH,
            block_size=_BLOCK_SIZE,
            kv_bytes_per_token=1,
        )

    def submit(self, batch: Batch) -> object:
        """Let the pass's time go by."""
        rows = batch.total_tokens + batch.idle_rows
        self._clock.advance(self._seconds(rows, len(batch.sample_rows)) if rows else self._empty_seconds)
        return batch

    def collect(self, handle: object) -> BatchResult:
        """Token 1 for every row that samples."""
        assert isinstance(handle, Batch)
        return BatchResult([1] * len(handle.sample_rows))
