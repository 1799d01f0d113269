"""Which free block to hand out next: the replaceable half of the KV memory."""

from __future__ import annotations

from typing import Protocol


class BlockAllocator(Protocol):
    """A strategy over the blocks `0 .. num_blocks - 1`, all free at first.

    It decides *which* blocks to grant; the pool audits every grant, so a wrong one can't corrupt
    anything, but ends the allocator's service.
    """

    def allocate(self, num_blocks: int) -> list[int]:
        """Grant that many free blocks, or fewer where the strategy can't (the pool gives them back)."""
        ...

    def release(self, blocks: list[int]) -> None:
        """Take blocks back that were granted before."""
        ...


class FreeListAllocator:
    """The last block released is the first granted, so that it is likely still in a cache."""

    def __init__(self, num_blocks: int) -> None:
        self._free = list(range(num_blocks - 1, -1, -1))

    @classmethod
    def over(cls, free_blocks: list[int]) -> FreeListAllocator:
        """An allocator that knows just these blocks as free."""
        allocator = cls(0)
        allocator._free = sorted(free_blocks, reverse=True)
        return allocator

    def allocate(self, num_blocks: int) -> list[int]:
        """Grant `num_blocks` blocks, or all that are left."""
        if num_blocks == 1 and self._free:
            return [self._free.pop()]
        split = max(0, len(self._free) - num_blocks)
        granted = self._free[split:]
        del self._free[split:]
        granted.reverse()
        return granted

    def release(self, blocks: list[int]) -> None:
        """Take blocks back."""
        self._free.extend(reversed(blocks))
