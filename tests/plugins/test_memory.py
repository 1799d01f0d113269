"""`reserved` and `contiguous`: blocks of prompt and output, taken on start."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import ConfigurationError
from plugins.contiguous import RunAllocator
from tests.plugins.runs import Run, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload

PLANNERS = st.sampled_from(["stall_free", "prefill_first", "orca", "static_batch"])


class TestReserved:
    def test_a_start_takes_the_blocks_of_prompt_and_max_tokens(self) -> None:
        run = Run("reserved", "paged:headroom=0", num_blocks=9, block_size=8)
        run.submit(make_request("a", 10, 30), make_request("b", 10, 30))
        record = run.step()
        assert run.planned(record) == {"a": 10}
        assert record.num_free_blocks == 4
        run.finish()
        assert run.simulation.ended["a"] < run.simulation.first_tokens["b", 0]

    def test_the_predicted_output_is_less_and_may_preempt(self) -> None:
        run = Run("reserved:output=predicted", "paged:headroom=0", num_blocks=8, block_size=8)
        run.finish(*(make_request(f"short-{i}", 10, 1) for i in range(20)))
        run.submit(make_request("a", 10, 40), make_request("b", 10, 40))
        assert run.planned(run.step()).keys() == {"a", "b"}
        run.finish()
        assert run.engine.state.num_preemptions > 0

    @modestly
    @given(cases, PLANNERS, st.booleans())
    def test_nobody_is_ever_preempted_for_memory(
        self, case: tuple[Machine, Workload], planner: str, headroom: bool
    ) -> None:
        machine, workload = case
        memory = ["reserved"] if headroom else ["reserved", "paged:headroom=0"]
        run = run_on(machine, *memory, planner).all_of(workload)
        assert run.engine.state.num_preemptions == 0
        assert not any("next_block" in record.shortages for record in run.records)

    def test_nor_under_a_flood(self) -> None:
        run = Run("reserved", "paged:headroom=0", num_blocks=20, block_size=16)
        run.under_flood(flood("r", [(20, 60), (100, 3), (5, 40)]), until=lambda: len(run.records) == 400)
        assert run.engine.state.num_preemptions == 0

    def test_another_output_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"reserved.*output"):
            Run("reserved:output=some")


class TestRunAllocator:
    def test_the_first_run_that_is_long_enough_is_taken(self) -> None:
        allocator = RunAllocator(10)
        assert [allocator.allocate(n) for n in (3, 2, 4)] == [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
        allocator.release([0, 1, 2])
        allocator.release([5, 6, 7, 8])
        assert allocator.free_runs == [(0, 3), (5, 5)]
        assert allocator.allocate(4) == [5, 6, 7, 8]

    def test_nothing_is_granted_where_all_free_runs_are_shorter(self) -> None:
        allocator = RunAllocator(9)
        held = [allocator.allocate(3) for _ in range(3)]
        allocator.release(held[0])
        allocator.release(held[2])
        assert allocator.allocate(4) == []
        assert allocator.free_runs == [(0, 3), (6, 3)]
        allocator.release(held[1])
        assert allocator.allocate(9) == list(range(9))

    @given(st.integers(1, 40), st.lists(st.integers(-12, 12).filter(bool), max_size=60), st.integers(0, 1 << 30))
    def test_grants_are_runs_and_everything_comes_back(self, size: int, moves: list[int], seed: int) -> None:
        draw = random.Random(seed)
        allocator = RunAllocator(size)
        free = set(range(size))
        held: list[list[int]] = []
        for move in moves:
            if move > 0:
                runs = [n for n in range(size - move + 1) if free >= set(range(n, n + move))]
                granted = allocator.allocate(move)
                assert granted == (list(range(runs[0], runs[0] + move)) if runs else [])
                free -= set(granted)
                held += [granted] * bool(granted)
            elif held:
                back = held.pop(draw.randrange(len(held)))
                draw.shuffle(back)
                allocator.release(back)
                free |= set(back)
            assert {b for first, length in allocator.free_runs for b in range(first, first + length)} == free
            ends = [(first, first + length) for first, length in allocator.free_runs]
            assert all(end < start for (_, end), (start, _) in itertools.pairwise(ends))


class TestContiguous:
    def test_a_sequence_owns_neighbouring_blocks(self) -> None:
        run = Run("contiguous", num_blocks=20, block_size=8)
        run.submit(make_request("a", 10, 30), make_request("b", 20, 8), make_request("c", 4, 12))
        run.step(2)
        assert [s.block_table for s in run.engine.state.running] == [[0, 1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]

    def test_fragments_keep_a_sequence_waiting_although_blocks_are_free(self) -> None:
        def started(*memory: str) -> tuple[bool, dict[str, int], int]:
            run = Run(*memory, "paged:headroom=0", num_blocks=16, block_size=8)
            run.submit(*(make_request(f"{'long' if i % 2 else 'short'}-{i}", 8, 40 if i % 2 else 6) for i in range(4)))
            run.step(7)  # the short ones have left two holes of two blocks
            run.submit(make_request("big", 30, 2))
            free = run.engine.state.num_free_blocks
            record = run.step()
            return "big" in run.planned(record), record.shortages, free

        fits, shortages, free = started("contiguous")
        assert free >= 4
        assert (fits, shortages) == (False, {"refused": 1})
        fits, shortages, free = started()
        assert (fits, shortages) == (True, {})

    @modestly
    @given(cases, PLANNERS)
    def test_nobody_lacks_a_block_once_started(self, case: tuple[Machine, Workload], planner: str) -> None:
        machine, workload = case
        if any(wish.n > 1 for wish in workload.wishes):
            return  # siblings share the blocks of their prompt
        run = run_on(
            machine, "contiguous", "paged:headroom=0", planner, look=lambda v: [list(s.block_table) for s in v.running]
        ).all_of(workload)
        for tables in run.witness.seen:
            assert all(table == list(range(table[0], table[0] + len(table))) for table in tables)
        assert not any("next_block" in record.shortages for record in run.records)
