from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import IntegrityError
from core_engine.kv import FreeListAllocator, KVPool
from core_engine.request import Sequence
from tests.engine.helpers import make_sequence


class Scripted:
    """An allocator that answers what it is told to, else like a free list."""

    def __init__(self, num_blocks: int, answer: Callable[[int], Any] | None = None, release_raises: bool = False):
        self.inner = FreeListAllocator(num_blocks)
        self.answer = answer
        self.release_raises = release_raises

    def allocate(self, num_blocks: int) -> Any:
        return self.answer(num_blocks) if self.answer else self.inner.allocate(num_blocks)

    def release(self, blocks: list[int]) -> None:
        if self.release_raises:
            raise RuntimeError("no")
        self.inner.release(blocks)


def owned(*sequences: Sequence) -> list[int]:
    return sorted(block for sequence in sequences for block in sequence.block_table)


def test_grows_by_different_blocks_and_gives_them_all_back() -> None:
    pool = KVPool(8, 16)
    first, second = make_sequence(1), make_sequence(2)
    assert pool.grow(first, 3)
    assert pool.grow(second, 5)
    assert owned(first, second) == list(range(8))
    assert pool.num_free_blocks == 0
    pool.check_integrity([first, second])
    assert pool.release(first) == 3
    assert first.block_table == []
    assert pool.num_free_blocks == 3
    pool.check_integrity([second])


def test_growing_is_all_or_nothing() -> None:
    pool = KVPool(4, 16)
    sequence = make_sequence(1)
    assert not pool.grow(sequence, 5)
    assert (sequence.block_table, pool.num_free_blocks) == ([], 4)


def test_a_refusal_of_a_fragmented_allocator_takes_nothing() -> None:
    faults: list[str] = []
    pool = KVPool(4, 16, Scripted(4, lambda n: [2][:n]), faults.append)
    other, sequence = make_sequence(1), make_sequence(2)
    assert pool.grow(other, 1)
    pool._allocator = Scripted(4, lambda n: [0])  # grants one block, however many are asked for
    assert not pool.grow(sequence, 2)
    assert (sequence.block_table, pool.num_free_blocks, faults) == ([], 3, [])
    pool.check_integrity([other])


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: [0] * n,
        lambda n: list(range(n + 1)),
        lambda n: [7, *range(n - 1)],  # 7 is owned
        lambda n: [-1],
        lambda n: [8],
        lambda n: ["0"],
        lambda n: [True],
        lambda n: [0.0],
        lambda n: [[0]],
        lambda n: None,
        lambda n: (0, 1),
        lambda n: 1 / 0,
    ],
)
def test_a_wrong_grant_ends_the_allocators_service_and_the_sequence_gets_its_blocks(answer: Any) -> None:
    faults: list[str] = []
    allocator = Scripted(8, lambda n: [7])
    pool = KVPool(8, 16, allocator, faults.append)
    other, sequence = make_sequence(1), make_sequence(2)
    assert pool.grow(other, 1)
    allocator.answer = answer
    assert pool.grow(sequence, 2)
    assert len(faults) == 1
    pool.check_integrity([other, sequence])
    assert pool.release(sequence) == 2
    assert pool.grow(sequence, 7)
    assert len(faults) == 1
    pool.check_integrity([other, sequence])


def test_an_allocator_that_refuses_although_everything_is_free_is_replaced() -> None:
    faults: list[str] = []
    pool = KVPool(8, 16, Scripted(8, lambda n: []), faults.append)
    sequence = make_sequence(1)
    assert pool.grow(sequence, 8)
    assert len(faults) == 1
    pool.check_integrity([sequence])


def test_an_allocator_that_raises_on_release_is_replaced() -> None:
    faults: list[str] = []
    pool = KVPool(8, 16, Scripted(8, release_raises=True), faults.append)
    sequence = make_sequence(1)
    assert pool.grow(sequence, 3)
    assert pool.release(sequence) == 3
    assert len(faults) == 1
    assert pool.grow(sequence, 8)
    pool.check_integrity([sequence])


@pytest.mark.parametrize(
    "harm",
    [
        lambda pool, a, b: a.block_table.append(b.block_table[0]),
        lambda pool, a, b: a.block_table.append(a.block_table[0]),
        lambda pool, a, b: a.block_table.pop(),
        lambda pool, a, b: a.block_table.append(7),  # a free one
        lambda pool, a, b: setattr(pool, "num_free_blocks", 7),
    ],
)
def test_the_audit_finds(harm: Callable[[KVPool, Sequence, Sequence], None]) -> None:
    pool = KVPool(8, 16)
    first, second = make_sequence(1), make_sequence(2)
    pool.grow(first, 2)
    pool.grow(second, 2)
    pool.check_integrity([first, second])
    harm(pool, first, second)
    with pytest.raises(IntegrityError):
        pool.check_integrity([first, second])


def test_the_audit_finds_blocks_of_a_sequence_that_does_not_run() -> None:
    pool = KVPool(8, 16)
    sequence = make_sequence(1)
    pool.grow(sequence, 2)
    with pytest.raises(IntegrityError):
        pool.check_integrity([])


def test_blocks_for_rounds_up() -> None:
    pool = KVPool(8, 16)
    assert [pool.blocks_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=60), st.integers(8, 20))
def test_any_history_keeps_every_block_free_or_owned_once(moves: list[tuple[int, int]], num_blocks: int) -> None:
    pool = KVPool(num_blocks, 16)
    sequences = [make_sequence(i) for i in range(6)]
    for who, how_many in moves:
        before = len(sequences[who].block_table), pool.num_free_blocks
        if how_many == 0:
            assert pool.release(sequences[who]) == before[0]
        else:
            assert pool.grow(sequences[who], how_many) == (how_many <= before[1])
        pool.check_integrity(sequences)
        assert pool.num_free_blocks == num_blocks - len(owned(*sequences))
