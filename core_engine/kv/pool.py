"""KVPool: who owns which block. Not replaceable: every grant of an allocator is audited here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from core_engine.errors import IntegrityError
from core_engine.kv.allocator import BlockAllocator, FreeListAllocator
from core_engine.request import Sequence

_log = logging.getLogger("jitney.kv")


class KVPool:
    """Ownership of `num_blocks` blocks of `block_size` tokens each.

    Every block is free or owned, exactly once. `grow` and `release` are the only ways to move one.
    An allocator that raises, or grants a block that is not free, is replaced at once by a free list
    over what the pool knows to be free, and `on_fault` hears why: its own state can't be trusted.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        allocator: BlockAllocator | None = None,
        on_fault: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_free_blocks = num_blocks
        self._allocator: BlockAllocator = allocator or FreeListAllocator(num_blocks)
        self._on_fault = on_fault
        self._owner: list[int | None] = [None] * num_blocks  # sequence id

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold that many tokens."""
        return -(-num_tokens // self.block_size)

    def grow(self, sequence: Sequence, num_blocks: int) -> bool:
        """Append `num_blocks` blocks to the sequence's table, or none at all.

        False where the pool or the allocator has not that many; what it granted is returned.
        """
        if num_blocks > self.num_free_blocks:
            return False
        alone = self.num_free_blocks == self.num_blocks - len(sequence.block_table)
        granted = self._allocate(num_blocks)
        if len(granted) < num_blocks and alone:
            # Nobody else owns a block, so no fragmentation can explain the refusal.
            self._give_back(granted)
            self._replace_allocator(f"it granted {len(granted)} of {num_blocks} blocks though all others are free")
            granted = self._allocate(num_blocks)
        if len(granted) < num_blocks:
            self._give_back(granted)
            return False
        for block in granted:
            self._owner[block] = sequence.id
        self.num_free_blocks -= num_blocks
        sequence.block_table.extend(granted)
        return True

    def release(self, sequence: Sequence) -> int:
        """Free all blocks of the sequence; returns how many became free."""
        blocks = sequence.block_table
        sequence.block_table = []
        for block in blocks:
            self._owner[block] = None
        self.num_free_blocks += len(blocks)
        self._give_back(blocks)
        return len(blocks)

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless every block is free or owned by one running sequence, once."""
        seen: dict[int, int] = {}
        for sequence in running:
            for block in sequence.block_table:
                if block in seen:
                    raise IntegrityError(f"block {block} is in the tables of sequences {seen[block]} and {sequence.id}")
                if self._owner[block] != sequence.id:
                    raise IntegrityError(f"block {block} of sequence {sequence.id} belongs to {self._owner[block]}")
                seen[block] = sequence.id
        owned = sum(owner is not None for owner in self._owner)
        if owned != len(seen):
            lost = [block for block, owner in enumerate(self._owner) if owner is not None and block not in seen]
            raise IntegrityError(f"blocks {lost[:8]} are owned, but in no running sequence's table")
        if owned + self.num_free_blocks != self.num_blocks:
            raise IntegrityError(f"{owned} owned + {self.num_free_blocks} free blocks are not {self.num_blocks}")

    def _allocate(self, num_blocks: int) -> list[int]:
        try:
            granted = self._allocator.allocate(num_blocks)
            fault = self._audit(granted, num_blocks)
        except Exception as error:
            fault = f"allocate({num_blocks}) raised {error!r}"
        if fault is None:
            return granted
        self._replace_allocator(fault)
        return self._allocator.allocate(num_blocks)

    def _audit(self, granted: object, num_blocks: int) -> str | None:
        if type(granted) is not list or len(granted) > num_blocks or len(set(granted)) != len(granted):
            return f"allocate({num_blocks}) answered {granted!r:.80}, not a list of at most that many different blocks"
        for block in granted:
            if type(block) is not int or not 0 <= block < self.num_blocks:
                return f"it granted {block!r:.40}, which is no block"
            if self._owner[block] is not None:
                return f"it granted block {block}, which sequence {self._owner[block]} owns"
        return None

    def _give_back(self, blocks: list[int]) -> None:
        if not blocks:
            return
        try:
            self._allocator.release(blocks)
        except Exception as error:
            self._replace_allocator(f"release raised {error!r}")

    def _replace_allocator(self, reason: str) -> None:
        _log.error("block allocator %s is replaced by a free list: %s", type(self._allocator).__name__, reason)
        self._allocator = FreeListAllocator.over([b for b, owner in enumerate(self._owner) if owner is None])
        self._on_fault(reason)
