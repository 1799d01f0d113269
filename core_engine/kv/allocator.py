"""Which free block to hand out next: the replaceable half of the KV memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol, runtime_checkable


class BlockAllocator(Protocol):
    """A strategy over the blocks `0 .. num_blocks - 1`, all free at first.

    It decides *which* blocks to grant; the pool audits every grant, so a wrong one can't corrupt
    anything, but ends the allocator's service.
    """

    def allocate(self, num_blocks: int) -> list[int]:
        """Grant that many free blocks, or fewer where the strategy can't (the pool gives them back)."""
        ...

    def release(self, blocks: list[int]) -> None:
        """Take blocks back that nobody holds any more, in the order of the tokens they held."""
        ...


@runtime_checkable
class SharingAllocator(BlockAllocator, Protocol):
    """A strategy that remembers the content of blocks, so that they can be found again.

    A block that was published stays findable while it is held, and idle after its release until
    `allocate` grants it to somebody else.
    """

    def match(self, hashes: tuple[bytes, ...]) -> list[int]:
        """The blocks of the longest known prefix of the chain of hashes; changes nothing."""
        ...

    def reuse(self, blocks: list[int]) -> None:
        """These idle blocks are held again, for their content."""
        ...

    def publish(self, blocks: list[int], hashes: list[bytes]) -> list[int]:
        """Remember that these held blocks have that content; returns those that it does remember now.

        A content that is known already, in another block, may be passed over.
        """
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


class PrefixCachingAllocator(FreeListAllocator):
    """A free list that keeps released content findable, and evicts the least recently used first.

    Source: automatic prefix caching (vLLM), over a radix-free table of chained hashes. Of one sequence
    the last block is evicted first, since a chain is worth nothing without its beginning.
    """

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # published and not held, next to evict first

    def allocate(self, num_blocks: int) -> list[int]:
        """Grant blocks without content first, then evict."""
        granted = super().allocate(num_blocks)
        while len(granted) < num_blocks and self._idle:
            block, _ = self._idle.popitem(last=False)
            del self._block_of[self._hash_of.pop(block)]
            granted.append(block)
        return granted

    def release(self, blocks: list[int]) -> None:
        """Keep published blocks for their content, from the last to the first."""
        plain = [block for block in blocks if block not in self._hash_of]
        super().release(plain)
        for block in reversed(blocks):
            if block in self._hash_of:
                self._idle[block] = None

    def match(self, hashes: tuple[bytes, ...]) -> list[int]:
        """The blocks of the longest known prefix."""
        found = []
        for digest in hashes:
            block = self._block_of.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def reuse(self, blocks: list[int]) -> None:
        """Take idle blocks out of the order of eviction."""
        for block in blocks:
            self._idle.pop(block, None)

    def publish(self, blocks: list[int], hashes: list[bytes]) -> list[int]:
        """Remember contents that are not known yet."""
        remembered = []
        for block, digest in zip(blocks, hashes, strict=True):
            if digest not in self._block_of and block not in self._hash_of:
                self._block_of[digest] = block
                self._hash_of[block] = digest
                remembered.append(block)
        return remembered
