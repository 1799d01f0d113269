"""Contiguous memory: one run of blocks per sequence, to show what paging removes."""

from __future__ import annotations

from bisect import bisect_left

from core_engine.hookspecs import NoOptions, hookimpl
from core_engine.kv import BlockAllocator
from core_engine.view import EngineView, SequenceView


class RunAllocator:
    """Grants runs of neighbouring blocks, from the first free run that is long enough, or nothing.

    `free_runs` are (first block, length), in order, never touching each other.
    """

    def __init__(self, num_blocks: int) -> None:
        self.free_runs = [(0, num_blocks)]

    def allocate(self, num_blocks: int) -> list[int]:
        """Grant one run of that length, or nothing where all free runs are shorter."""
        for index, (first, length) in enumerate(self.free_runs):
            if length >= num_blocks:
                left = [(first + num_blocks, length - num_blocks)] if length > num_blocks else []
                self.free_runs[index : index + 1] = left
                return list(range(first, first + num_blocks))
        return []

    def release(self, blocks: list[int]) -> None:
        """Take blocks back, and join them with free neighbours."""
        for block in blocks:
            first, length = block, 1
            index = bisect_left(self.free_runs, (block, 0))
            low = high = index
            if index < len(self.free_runs) and self.free_runs[index][0] == block + 1:
                length += self.free_runs[index][1]
                high = index + 1
            if index and sum(self.free_runs[index - 1]) == block:
                first, before = self.free_runs[index - 1]
                length += before
                low = index - 1
            self.free_runs[low:high] = [(first, length)]


class Contiguous:
    """Gives each sequence one contiguous run of blocks, reserved whole on start, as systems did before paging.

    The run holds prompt and max_tokens. A sequence for which no free run is long enough waits, although blocks
    are free: external fragmentation, counted as memory shortages of cause `refused`. Source: the systems that
    PagedAttention (vLLM, SOSP '23) measured itself against. No options. Guarantees that a sequence started
    under it owns neighbouring blocks and lacks none. The allocator is fixed at start; name it before
    other policies of memory, `paged:headroom=0` among them.
    """

    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def create_block_allocator(self, num_blocks: int) -> BlockAllocator:
        """Runs of neighbouring blocks."""
        return RunAllocator(num_blocks)

    @hookimpl
    def reserve_blocks(self, sequence: SequenceView, view: EngineView) -> int:
        """Blocks of prompt and max_tokens."""
        return -(-(sequence.num_prompt_tokens + sequence.max_tokens) // view.block_size)
