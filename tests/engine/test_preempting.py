"""Who gives way, and for whom: what the engine makes of shortages of memory and of rank."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.budget import Budget
from core_engine.hookspecs import hookimpl
from core_engine.plan import PrefillLimit, Shortage
from core_engine.view import EngineView, SequenceView, waiting_by_arrival
from tests.engine.helpers import make_sequence
from tests.plugins.runs import Run, make_request


class ByPriority:
    """Ranks by priority, lets those of priority 99 run, and offers everybody as a victim, worst first."""

    def __init__(self) -> None:
        self.shortages: list[Shortage] = []

    @hookimpl
    def rank_sequences(self, view: EngineView) -> Any:
        everybody = sorted([*view.running, *waiting_by_arrival(view)], key=lambda s: s.priority)
        return [s.id for s in everybody], {s.id for s in everybody if s.priority == 99}

    @hookimpl
    def choose_victims(self, order: list[int], shortage: Shortage) -> Any:
        if shortage.kind == "memory":
            return None
        self.shortages.append(shortage)
        return list(reversed(order))


class TestRank:
    def test_a_newcomer_needs_what_gates_keep_free_too(self) -> None:
        policy = ByPriority()
        run = Run(policy, "paged:headroom=2", num_blocks=10, block_size=8)
        run.submit(make_request("a", 8, 20, priority=5), make_request("b", 20, 20, priority=5))
        run.step()
        run.submit(make_request("urgent", 24, 5))
        record = run.step()
        # Three blocks, and two for each that runs; ten less those that run leave six.
        assert policy.shortages[0].num_blocks == 3 + 2 * 2 - 6
        assert record.preempted == {1: "rank"}
        assert run.planned(record)["urgent"] == 24

    def test_one_that_must_run_finds_a_seat_behind_one_that_outranks(self) -> None:
        run = Run(ByPriority(), sequence_limit=3)
        run.submit(make_request("x", 8, 50), make_request("y", 8, 50, priority=1), make_request("z", 8, 50, priority=7))
        run.step()
        run.submit(make_request("urgent", 8, 5, priority=5), make_request("must", 8, 5, priority=99))
        record = run.step()
        assert record.preempted == {2: "rank", 1: "rank"}
        assert {"urgent", "must"} < run.planned(record).keys()

    def test_nobody_is_asked_while_nobody_outranks(self) -> None:
        policy = ByPriority()
        run = Run(policy, sequence_limit=2)
        run.finish(*(make_request(f"r{i}", 8, 5) for i in range(6)))
        assert policy.shortages == []


class OnlyNewest:
    """Plans the newest sequence and nobody else."""

    @hookimpl
    def plan_iteration(self, running: list[SequenceView], waiting: list[SequenceView], budget: Budget) -> Any:
        for sequence in sorted([*running, *waiting], key=lambda s: -s.id)[:1]:
            budget.take(sequence, sequence.num_pending_tokens)
        return budget.plan()


class TestMemory:
    def test_a_stalled_anchor_with_room_in_its_blocks_takes_nobodys(self) -> None:
        run = Run(OnlyNewest(), "paged:headroom=0", num_blocks=4, block_size=16)
        run.submit(make_request("anchor", 20, 8))
        run.step()
        run.submit(make_request("other", 20, 8))
        run.finish()
        assert run.engine.state.num_preemptions == 0

    @pytest.mark.parametrize("num_blocks", [13, 16])
    def test_a_victim_counts_for_the_blocks_that_become_free(self, num_blocks: int) -> None:
        run = Run("paged:headroom=0", num_blocks=num_blocks, block_size=8)
        run.finish(make_request("a", 20, 20), make_request("b", 20, 20), make_request("twins", 40, 20, n=2))
        # A twin holds most of its blocks together with the other; who preempts it must go on.
        assert run.engine.state.num_preemptions > 0
        assert not any(record.preempted and "take" in record.shortages for record in run.records)


def test_what_an_exempt_sequence_takes_counts_against_the_gates() -> None:
    limit = PrefillLimit(prompt_tokens=50, new_sequences=1)
    budget = Budget(
        token_limit=100,
        sequences_left=4,
        blocks_left=50,
        block_size=16,
        reserve=lambda sequence: 0,
        limit=limit,
        exempt={1},
    )
    assert budget.take(make_sequence(1, prompt=40), 40) == 40
    assert budget.take(make_sequence(2, prompt=40), 40) == 0
    assert 2 in budget.held


def test_a_waiting_anchor_yields_to_those_that_end_in_the_iteration_they_start() -> None:
    run = Run("priority:min_share=0,preempt=false", sequence_limit=1)
    run.submit(make_request("oldest", 10, 1, priority=9))
    run.submit(*(make_request(f"r{i}", 10, 1) for i in range(12)))
    run.finish()
    assert run.started() == [*(f"r{i}" for i in range(12)), "oldest"]
