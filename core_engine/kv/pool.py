"""KVPool: who holds which block. Not replaceable: every grant of an allocator is audited here."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from core_engine.errors import IntegrityError
from core_engine.kv.allocator import BlockAllocator, FreeListAllocator, SharingAllocator
from core_engine.request import Sequence

_log = logging.getLogger("jitney.kv")


class KVPool:
    """Ownership of `num_blocks` blocks of `block_size` tokens each.

    A block is free or held, by one sequence or, where its content is shared, by several. A free one may
    be *idle*: its content is still known and can be found again until it is granted anew. `grow`, `share`
    and `release` are the only ways to move one. An allocator that raises, or grants or matches a wrong block,
    is replaced at once by a free list over what the pool knows to be free, and `on_fault` hears
    why: its own state can't be trusted.
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
        self.num_idle_blocks = 0  # of the free ones, those with known content
        self._use(allocator or FreeListAllocator(num_blocks))
        self._on_fault = on_fault
        self._holders: list[list[Sequence]] = [[] for _ in range(num_blocks)]
        self._content: list[bytes | None] = [None] * num_blocks  # hash of the published content

    @property
    def remembers(self) -> bool:
        """Whether contents can be found again, so that hashes are worth computing."""
        return self._memory is not None

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold that many tokens."""
        return -(-num_tokens // self.block_size)

    def is_free(self, block: int) -> bool:
        """Whether nobody holds the block."""
        return not self._holders[block]

    def grow(self, sequence: Sequence, num_blocks: int) -> bool:
        """Append `num_blocks` blocks to the sequence's table, or none at all.

        False where the pool or the allocator has not that many; what it granted is returned.
        """
        if num_blocks <= 0 or num_blocks > self.num_free_blocks:
            return num_blocks <= 0
        granted = self._allocate(num_blocks)
        if len(granted) < num_blocks and self.num_free_blocks == self.num_blocks - len(sequence.block_table):
            # Nobody else holds a block, so no fragmentation can explain the refusal.
            self._give_back(granted)
            self._replace_allocator(f"it granted {len(granted)} of {num_blocks} blocks though all others are free")
            granted = self._allocate(num_blocks)
        if len(granted) < num_blocks:
            self._give_back(granted)
            return False
        for block in granted:
            self._holders[block].append(sequence)
        self.num_free_blocks -= num_blocks
        sequence.block_table.extend(granted)
        return True

    def match(self, hashes: tuple[bytes, ...]) -> list[int]:
        """The blocks of the longest prefix of the chain whose content is known; changes nothing."""
        if not hashes or self._memory is None:
            return []
        try:
            blocks = list(self._memory.match(hashes))
            right = len(blocks) <= len(hashes) and all(map(self._contains, blocks, hashes))
            fault = None if right else f"match answered wrong blocks: {blocks!r:.80}"
        except Exception as error:
            fault = f"match raised {error!r}"
        if fault is None:
            return blocks
        self._replace_allocator(fault)
        return []

    def share(self, sequence: Sequence, blocks: list[int]) -> None:
        """Append blocks with known content, idle or held by others, to the sequence's table."""
        idle = [block for block in blocks if not self._holders[block]]
        for block in blocks:
            holders = self._holders[block]
            if len(holders) == 1:
                holders[0].num_shared_blocks += 1
            if holders:
                sequence.num_shared_blocks += 1
            holders.append(sequence)
        self.num_free_blocks -= len(idle)
        self.num_idle_blocks -= sum(self._content[block] is not None for block in idle)
        sequence.block_table.extend(blocks)
        if not idle:
            return
        if self._memory is None:
            # The allocator that knew the contents has been replaced since the match by one that takes them for free.
            self._use(self._free_list())
            return
        try:
            self._memory.reuse(idle)
        except Exception as error:
            self._replace_allocator(f"reuse raised {error!r}")

    def publish(self, sequence: Sequence, first: int, last: int) -> None:
        """The sequence's blocks `first .. last - 1` are full of prompt tokens now: let others find them."""
        if first >= last or self._memory is None:
            return
        hash_of = dict(zip(sequence.block_table[first:last], sequence.block_hashes[first:last], strict=True))
        try:
            for block in self._memory.publish(list(hash_of), list(hash_of.values())):
                self._content[block] = hash_of[block]
        except Exception as error:
            self._replace_allocator(f"publish raised {error!r}")

    def release(self, sequence: Sequence) -> int:
        """Let go of all blocks of the sequence; returns how many became free."""
        return self.shrink(sequence, 0)

    def shrink(self, sequence: Sequence, num_blocks: int) -> int:
        """Let go of all blocks but the first `num_blocks`; returns how many became free."""
        freed = []
        for block in sequence.block_table[num_blocks:]:
            holders = self._holders[block]
            holders.remove(sequence)
            if holders:
                sequence.num_shared_blocks -= 1
            if len(holders) == 1:
                holders[0].num_shared_blocks -= 1
            if not holders:
                freed.append(block)
                self.num_idle_blocks += self._content[block] is not None
        del sequence.block_table[num_blocks:]
        num_freed = len(freed)
        self.num_free_blocks += num_freed
        self._give_back(freed)
        return num_freed

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless the holders of each block are the running sequences with it in their table."""
        found: dict[int, list[Sequence]] = {}
        for sequence in running:
            if len(set(sequence.block_table)) < len(sequence.block_table):
                raise IntegrityError(f"{sequence} has a block twice")
            for block in sequence.block_table:
                found.setdefault(block, []).append(sequence)
        # Most blocks are neither held nor found, and an answer waits for this: they cost no more than a look.
        held = [block for block, holders in enumerate(self._holders) if holders]
        shared: Counter[int] = Counter()
        for block in found.keys() | held:
            holders, owners = self._holders[block], found.get(block, [])
            if len(owners) < 2 and holders == owners:
                continue
            if sorted(s.id for s in holders) != sorted(s.id for s in owners):
                raise IntegrityError(f"block {block} is held by {holders}, but in the tables of {owners}")
            if len(owners) > 1:
                shared.update(s.id for s in owners)
        for sequence in {s.id: s for holders in found.values() for s in holders}.values():
            if sequence.num_shared_blocks != shared[sequence.id]:
                raise IntegrityError(
                    f"{sequence} shares {shared[sequence.id]} blocks, not {sequence.num_shared_blocks}"
                )
        num_free = self.num_blocks - len(found)
        num_idle = self.num_blocks - self._content.count(None) - sum(self._content[b] is not None for b in found)
        if (num_free, num_idle) != (self.num_free_blocks, self.num_idle_blocks):
            raise IntegrityError(
                f"{num_free} blocks are free, {num_idle} of them idle; "
                f"counted {self.num_free_blocks} and {self.num_idle_blocks}"
            )

    def _use(self, allocator: BlockAllocator) -> None:
        self._allocator = allocator
        self._memory = allocator if isinstance(allocator, SharingAllocator) else None

    def _allocate(self, num_blocks: int) -> list[int]:
        try:
            granted = self._allocator.allocate(num_blocks)
            fault = self._audit(granted, num_blocks)
        except Exception as error:
            fault = f"allocate({num_blocks}) raised {error!r}"
        if fault is not None:
            self._replace_allocator(fault)
            granted = self._allocator.allocate(num_blocks)
        for block in granted:
            if self._content[block] is not None:
                self._content[block] = None
                self.num_idle_blocks -= 1
        return granted

    def _audit(self, granted: object, num_blocks: int) -> str | None:
        if type(granted) is not list or len(granted) > num_blocks:
            return f"allocate({num_blocks}) answered {granted!r:.80}, not a list of at most that many blocks"
        for block in granted:
            if type(block) is not int or not 0 <= block < self.num_blocks:
                return f"it granted {block!r:.40}, which is no block"
            if self._holders[block]:
                return f"it granted block {block}, which sequence {self._holders[block][0].id} holds"
        if len(set(granted)) != len(granted):
            return f"it granted a block twice: {granted!r:.80}"
        return None

    def _give_back(self, blocks: list[int]) -> None:
        if not blocks:
            return
        try:
            self._allocator.release(blocks)
        except Exception as error:
            self._replace_allocator(f"release raised {error!r}")

    def _contains(self, block: object, digest: bytes) -> bool:
        return type(block) is int and 0 <= block < self.num_blocks and self._content[block] == digest

    def _free_list(self) -> FreeListAllocator:
        return FreeListAllocator.over([block for block, holders in enumerate(self._holders) if not holders])

    def _replace_allocator(self, reason: str) -> None:
        _log.error("block allocator %s is replaced by a free list: %s", type(self._allocator).__name__, reason)
        self._use(self._free_list())
        self._content = [None] * self.num_blocks
        self.num_idle_blocks = 0
        self._on_fault(reason)
