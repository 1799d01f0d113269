"""Remembering contents: the allocator by itself, and the pool's audit of what it claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import IntegrityError
from core_engine.kv import KVPool, PrefixCachingAllocator, chain_block_hashes
from core_engine.request import Request, SamplingParams, Sequence

SIZE = 16


def sequence(id: int, text: list[int], salt: str = "") -> Sequence:
    request = Request(id=f"r{id}", model="simulated", prompt_token_ids=text, sampling=SamplingParams(max_tokens=8))
    hashes = chain_block_hashes(text, SIZE, salt)
    return Sequence(id, request, 0, max_tokens=8, seed=0, arrival_seconds=0.0, arrival_iteration=0, block_hashes=hashes)


def text(blocks: int, of: int = 0, rest: int = 0) -> list[int]:
    """`blocks` full blocks, which begin like all others of the same `of`, and `rest` tokens more."""
    return [of * 1000 + i for i in range(blocks * SIZE + rest)]


def compute(pool: KVPool, sequence: Sequence) -> int:
    """What a start and a commit do; returns how many blocks were found."""
    found = pool.match(sequence.block_hashes)
    pool.share(sequence, found)
    assert pool.grow(sequence, pool.blocks_for(sequence.num_tokens) - len(found))
    pool.publish(sequence, len(found), len(sequence.block_hashes))
    return len(found)


class TestHashes:
    def test_only_full_blocks_have_one(self) -> None:
        assert [len(chain_block_hashes(text(0, rest=n), SIZE, "")) for n in (0, 15, 16, 31, 32)] == [0, 0, 1, 1, 2]

    def test_they_agree_as_far_as_everything_before_agrees(self) -> None:
        long, short = chain_block_hashes(text(3), SIZE, ""), chain_block_hashes(text(2, rest=5), SIZE, "")
        assert long[:2] == short
        changed = text(3)
        changed[0] += 1
        assert not set(chain_block_hashes(changed, SIZE, "")) & set(long)

    def test_the_salt_keeps_them_apart(self) -> None:
        assert not set(chain_block_hashes(text(3), SIZE, "a")) & set(chain_block_hashes(text(3), SIZE, "b"))


class TestAllocator:
    def test_content_is_found_while_held_and_after(self) -> None:
        allocator = PrefixCachingAllocator(4)
        blocks = allocator.allocate(2)
        assert allocator.publish(blocks, [b"a", b"b"]) == blocks
        assert allocator.match((b"a", b"b", b"c")) == blocks
        assert allocator.match((b"c", b"a")) == []
        allocator.release(blocks)
        assert allocator.match((b"a", b"b")) == blocks

    def test_blocks_without_content_go_first_then_the_least_recently_used_from_its_end(self) -> None:
        allocator = PrefixCachingAllocator(6)
        old, new = allocator.allocate(2), allocator.allocate(2)
        allocator.publish(old, [b"a", b"b"])
        allocator.publish(new, [b"c", b"d"])
        allocator.release(old)
        allocator.release(new)
        assert set(allocator.allocate(2)) == set(range(6)) - set(old) - set(new)
        assert allocator.allocate(1) == [old[1]]
        assert allocator.match((b"a", b"b")) == old[:1]
        allocator.reuse([old[0]])
        allocator.release([old[0]])  # used again, so the others go before it
        assert allocator.allocate(2) == [new[1], new[0]]
        assert allocator.match((b"c",)) == []
        assert allocator.allocate(1) == [old[0]]

    def test_a_content_is_remembered_once(self) -> None:
        allocator = PrefixCachingAllocator(4)
        first, second = allocator.allocate(1), allocator.allocate(1)
        assert allocator.publish(first, [b"a"]) == first
        assert allocator.publish(second, [b"a"]) == []
        allocator.release(second)
        allocator.release(first)
        assert allocator.match((b"a",)) == first


class TestPool:
    def test_references_are_counted(self) -> None:
        pool = KVPool(8, SIZE, PrefixCachingAllocator(8))
        a, b = sequence(0, text(2, rest=1)), sequence(1, text(2, rest=9))
        assert (compute(pool, a), compute(pool, b)) == (0, 2)
        assert a.block_table[:2] == b.block_table[:2]
        assert [(s.num_shared_blocks, s.num_private_blocks) for s in (a, b)] == [(2, 1), (2, 1)]
        assert pool.num_free_blocks == 4
        pool.check_integrity([a, b])
        assert pool.release(a) == 1
        assert (b.num_shared_blocks, pool.num_idle_blocks) == (0, 0)
        assert pool.release(b) == 3
        assert (pool.num_free_blocks, pool.num_idle_blocks) == (8, 2)
        pool.check_integrity([])

    def test_a_partial_hit_shares_what_is_alike(self) -> None:
        pool = KVPool(12, SIZE, PrefixCachingAllocator(12))
        a = sequence(0, text(3))
        b = sequence(1, text(1) + text(2, of=7))
        assert (compute(pool, a), compute(pool, b)) == (0, 1)
        assert a.block_table[0] == b.block_table[0]
        assert not set(a.block_table[1:]) & set(b.block_table[1:])
        pool.check_integrity([a, b])

    def test_idle_contents_give_way_under_pressure(self) -> None:
        pool = KVPool(4, SIZE, PrefixCachingAllocator(4))
        a, b = sequence(0, text(3)), sequence(1, text(2, of=5))
        compute(pool, a)
        pool.release(a)
        assert (pool.num_free_blocks, pool.num_idle_blocks) == (4, 3)
        compute(pool, b)
        assert pool.num_idle_blocks == 2
        assert len(pool.match(a.block_hashes)) == 2
        pool.check_integrity([b])

    def test_shrinking_lets_go_of_the_end_only(self) -> None:
        pool = KVPool(8, SIZE, PrefixCachingAllocator(8))
        a, b = sequence(0, text(3)), sequence(1, text(3))
        compute(pool, a)
        compute(pool, b)
        assert pool.shrink(a, 1) == 0
        assert (len(a.block_table), a.num_shared_blocks, b.num_shared_blocks) == (1, 1, 1)
        pool.check_integrity([a, b])
        assert pool.shrink(b, 1) == 2
        pool.check_integrity([a, b])
        assert len(pool.match(a.block_hashes)) == 3

    def test_the_audit_finds_a_wrong_count_of_shared_blocks(self) -> None:
        pool = KVPool(8, SIZE, PrefixCachingAllocator(8))
        a, b = sequence(0, text(2)), sequence(1, text(2))
        compute(pool, a)
        compute(pool, b)
        a.num_shared_blocks = 1
        with pytest.raises(IntegrityError, match="shares 2 blocks, not 1"):
            pool.check_integrity([a, b])

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 3)), max_size=40))
    def test_any_history_keeps_counts_right(self, moves: list[tuple[int, int, int]]) -> None:
        pool = KVPool(8, SIZE, PrefixCachingAllocator(8), on_fault=pytest.fail)
        running: dict[int, Sequence] = {}
        for number, (who, of, blocks) in enumerate(moves):
            if who in running:
                pool.release(running.pop(who))
            else:
                newcomer = sequence(number, text(blocks, of=of))
                found = pool.match(newcomer.block_hashes)
                idle = sum(pool.is_free(block) for block in found)
                if blocks - len(found) + idle <= pool.num_free_blocks:
                    compute(pool, newcomer)
                    running[who] = newcomer
            pool.check_integrity(running.values())


class Lying(PrefixCachingAllocator):
    """Answers one question by what it is told to answer."""

    def __init__(self, num_blocks: int, question: str, answer: Callable[..., Any]) -> None:
        super().__init__(num_blocks)
        self.question = question
        self.answer = answer
        self.lies = False

    def match(self, hashes: tuple[bytes, ...]) -> Any:
        found = super().match(hashes)
        return self.answer(found) if self.lies and self.question == "match" else found

    def reuse(self, blocks: list[int]) -> None:
        if self.lies and self.question == "reuse":
            self.answer(blocks)
        super().reuse(blocks)

    def publish(self, blocks: list[int], hashes: list[bytes]) -> Any:
        remembered = super().publish(blocks, hashes)
        return self.answer(remembered) if self.lies and self.question == "publish" else remembered


def fail(*_: Any) -> Any:
    raise RuntimeError("no")


class TestLies:
    @pytest.mark.parametrize(
        ("question", "answer"),
        [
            ("match", fail),
            ("match", lambda found: [7, *found]),
            ("match", lambda found: [*found, 7]),
            ("match", lambda found: list(reversed(found))),
            ("match", lambda found: found * 2),
            ("match", lambda found: [block - 8 for block in found]),  # the same ones counted from the end
            ("match", lambda found: [float(block) for block in found]),
            ("match", lambda found: [str(block) for block in found]),
            ("match", lambda found: None),
            ("match", lambda found: 3),
            ("match", lambda found: [99]),
            ("match", lambda found: [[0]]),
            ("reuse", fail),
            ("publish", fail),
            ("publish", lambda remembered: None),
            ("publish", lambda remembered: [99]),
            ("publish", lambda remembered: ["0"]),
            ("publish", lambda remembered: [[0]]),
        ],
    )
    def test_a_lie_ends_the_allocators_service_and_nobody_notices(
        self, question: str, answer: Callable[..., Any]
    ) -> None:
        faults: list[str] = []
        allocator = Lying(8, question, answer)
        pool = KVPool(8, SIZE, allocator, faults.append)
        a, b = sequence(0, text(2)), sequence(1, text(2, rest=1))
        compute(pool, a)
        if question == "reuse":
            pool.release(a)
        allocator.lies = True
        if question == "publish":
            pool.publish(a, 0, 1)
        compute(pool, b)
        running = [s for s in (a, b) if s.block_table]
        pool.check_integrity(running)
        assert len(faults) == 1, faults
        assert not pool.remembers
        for s in running:
            pool.release(s)
        c = sequence(2, text(8))
        assert pool.grow(c, 8)
        pool.check_integrity([c])
        assert len(faults) == 1

    def test_the_blocks_of_a_match_are_the_pools_own(self) -> None:
        kept: list[list[int]] = []

        def remember(found: list[int]) -> list[int]:
            kept.append(found)
            return found

        allocator = Lying(8, "match", remember)
        pool = KVPool(8, SIZE, allocator, pytest.fail)
        a = sequence(0, text(2))
        compute(pool, a)
        allocator.lies = True
        found = pool.match(a.block_hashes)
        kept[0].clear()
        assert found == a.block_table

    def test_blocks_matched_before_the_allocator_was_replaced_are_not_granted_again(self) -> None:
        faults: list[str] = []
        allocator = Lying(6, "reuse", fail)
        pool = KVPool(6, SIZE, allocator, faults.append)
        first, second = sequence(0, text(1)), sequence(1, text(1, of=5))
        for s in (first, second):
            compute(pool, s)
            pool.release(s)
        found = [pool.match(s.block_hashes) for s in (first, second)]
        allocator.lies = True
        for s, blocks in zip((first, second), found, strict=True):
            pool.share(s, blocks)  # the first ends the allocator's service
        third = sequence(2, text(4))
        assert pool.grow(third, 4)
        pool.check_integrity([first, second, third])
        assert faults == ["reuse raised RuntimeError('no')"]

    def test_an_allocator_that_empties_what_it_is_given_back_hides_nothing(self) -> None:
        class Empties(PrefixCachingAllocator):
            def release(self, blocks: list[int]) -> None:
                super().release(blocks)
                blocks.clear()

        pool = KVPool(4, SIZE, Empties(4))
        a = sequence(0, text(3))
        compute(pool, a)
        assert pool.release(a) == 3
