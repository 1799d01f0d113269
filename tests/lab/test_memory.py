"""The simulated memory must refuse every batch that a model would get wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core_engine.errors import IntegrityError
from core_engine.executor import Batch
from core_engine.lab.memory import SimulatedMemory
from core_engine.request import Sequence, Status
from tests.engine.helpers import make_sequence

SIZE = 4


def batch_of(*rows: tuple[Sequence, int]) -> Batch:
    """A right batch, written independently of the engine's own code."""
    batch = Batch(iteration=1, block_size=SIZE)
    for row, (sequence, num_tokens) in enumerate(rows):
        positions = range(sequence.num_computed_tokens, sequence.num_computed_tokens + num_tokens)
        batch.sequences.append(sequence)
        batch.num_query_tokens.append(num_tokens)
        batch.num_kv_tokens.append(positions.stop)
        batch.token_ids += [sequence.token_ids[p] for p in positions]
        batch.positions += positions
        batch.slot_mapping += [sequence.block_table[p // SIZE] * SIZE + p % SIZE for p in positions]
        if positions.stop == sequence.num_tokens:
            batch.sample_rows.append(row)
    return batch


def running(id: int, prompt: int, blocks: list[int]) -> Sequence:
    return make_sequence(id, prompt=prompt, blocks=blocks, running=True)


def execute(memory: SimulatedMemory, *rows: tuple[Sequence, int]) -> None:
    memory.execute(batch_of(*rows))
    for sequence, num_tokens in rows:
        sequence.num_computed_tokens += num_tokens


def test_chunks_decodes_and_neighbours_pass() -> None:
    memory = SimulatedMemory(8, SIZE)
    first, second = running(1, 10, [5, 2, 7]), running(2, 3, [0])
    execute(memory, (first, 3))
    execute(memory, (first, 6), (second, 3))
    execute(memory, (first, 1))
    first.append_token(42)
    second.append_token(43)
    execute(memory, (second, 1), (first, 1))


def test_recomputation_in_other_blocks_passes() -> None:
    memory = SimulatedMemory(8, SIZE)
    sequence = running(1, 6, [0, 1])
    execute(memory, (sequence, 6))
    sequence.num_computed_tokens = 0
    sequence.block_table = [4, 3]
    execute(memory, (sequence, 6))


Harm = Callable[[Batch, Sequence, Sequence], None]
HARMS: list[tuple[str, Harm]] = [
    ("a wrong token", lambda batch, a, b: batch.token_ids.__setitem__(0, 99)),
    ("a wrong position", lambda batch, a, b: batch.positions.__setitem__(1, 7)),
    ("a slot of another block", lambda batch, a, b: batch.slot_mapping.__setitem__(0, 31)),
    ("a slot of another row", lambda batch, a, b: batch.slot_mapping.__setitem__(0, batch.slot_mapping[-1])),
    ("a missing slot", lambda batch, a, b: batch.slot_mapping.pop()),
    ("a wrong number of keys", lambda batch, a, b: batch.num_kv_tokens.__setitem__(0, 5)),
    ("a row without tokens", lambda batch, a, b: batch.num_query_tokens.__setitem__(0, 0)),
    ("a row that should not sample", lambda batch, a, b: batch.sample_rows.insert(0, 0)),
    ("a row that should sample", lambda batch, a, b: batch.sample_rows.clear()),
    ("a sequence twice", lambda batch, a, b: batch.sequences.__setitem__(1, a)),
    ("a block that does not exist", lambda batch, a, b: a.block_table.__setitem__(1, 8)),
    ("a block of the other sequence", lambda batch, a, b: a.block_table.append(b.block_table[0])),
    ("a block twice", lambda batch, a, b: a.block_table.append(a.block_table[0])),
    ("too few blocks", lambda batch, a, b: a.block_table.pop()),
    ("a sequence that waits", lambda batch, a, b: setattr(a, "status", Status.WAITING)),
    ("a sequence that is further", lambda batch, a, b: setattr(a, "num_computed_tokens", 5)),
    ("another block size", lambda batch, a, b: setattr(batch, "block_size", 8)),
    ("negative idle rows", lambda batch, a, b: setattr(batch, "idle_rows", -1)),
]


@pytest.mark.parametrize("harm", [harm for _, harm in HARMS], ids=[name for name, _ in HARMS])
def test_refuses(harm: Harm) -> None:
    memory = SimulatedMemory(8, SIZE)
    first, second = running(1, 10, [5, 2]), running(2, 3, [0])
    execute(memory, (first, 4))
    batch = batch_of((first, 3), (second, 3))
    harm(batch, first, second)
    with pytest.raises(IntegrityError):
        memory.execute(batch)


def test_refuses_keys_that_somebody_overwrote() -> None:
    memory = SimulatedMemory(8, SIZE)
    first, second = running(1, 6, [0, 1]), running(2, 3, [0])
    execute(memory, (first, 4))
    execute(memory, (second, 3))
    with pytest.raises(IntegrityError, match="attends to positions 0 to 4"):
        execute(memory, (first, 2))


def test_refuses_keys_that_were_never_computed() -> None:
    memory = SimulatedMemory(8, SIZE)
    sequence = running(1, 6, [0, 1])
    sequence.num_computed_tokens = 4
    with pytest.raises(IntegrityError, match="attends to"):
        execute(memory, (sequence, 2))


def test_refuses_a_block_that_was_swapped_for_another() -> None:
    memory = SimulatedMemory(8, SIZE)
    sequence = running(1, 6, [0, 1])
    execute(memory, (sequence, 5))
    sequence.block_table = [0, 3]
    with pytest.raises(IntegrityError, match="lacks what comes before"):
        execute(memory, (sequence, 1))


def test_equal_blocks_of_different_pasts_are_different() -> None:
    memory = SimulatedMemory(8, SIZE)
    first, second = running(1, 8, [0, 1]), running(2, 9, [2, 1, 3])
    second.token_ids = [9, 9, 9, 9, *first.token_ids[4:], 5]
    execute(memory, (first, 8))
    execute(memory, (second, 4))
    second.num_computed_tokens = 8
    with pytest.raises(IntegrityError, match="attends to positions 4 to 8"):
        execute(memory, (second, 1))


def test_blocks_with_the_same_past_can_be_shared() -> None:
    memory = SimulatedMemory(8, SIZE)
    first, second = running(1, 8, [0, 1]), running(2, 9, [0, 1, 3])
    execute(memory, (first, 8))
    second.token_ids = [*first.token_ids, 5]
    second.num_computed_tokens = 8
    execute(memory, (second, 1))


def test_a_copied_block_is_a_block_of_its_own() -> None:
    memory = SimulatedMemory(8, SIZE)
    first, second = running(1, 6, [0, 1]), running(2, 6, [0, 3])
    execute(memory, (first, 6))
    second.num_computed_tokens = 5
    batch = batch_of((second, 1))
    batch.block_copies = [(1, 3)]
    memory.execute(batch)
    first.append_token(77)
    execute(memory, (first, 1))


def test_a_copy_of_nothing_is_refused() -> None:
    memory = SimulatedMemory(8, SIZE)
    batch = batch_of((running(1, 6, [0, 1]), 6))
    batch.block_copies = [(5, 6)]
    with pytest.raises(IntegrityError, match="copies block 5"):
        memory.execute(batch)
