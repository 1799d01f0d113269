"""Policies that raise or answer wrongly, in an engine: nobody but the policy suffers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from core_engine.hookspecs import hookimpl
from core_engine.panel import PolicyFault
from core_engine.plan import IterationPlan
from core_engine.testkit import simulated_engine
from tests.engine.test_iterations import NeverDelivers, make_request, run, with_recorder


class Raises:
    """Raises at every ranking from some iteration on."""

    def __init__(self, since: int = 1) -> None:
        self.since = since
        self.asked = 0

    @hookimpl
    def rank_sequences(self, view: Any) -> None:
        self.asked += 1
        if view.iteration >= self.since:
            raise ValueError("no idea")


def test_strict_raises_at_the_first_fault() -> None:
    engine, _ = simulated_engine([Raises(since=3)], strict=True)
    engine.submit(make_request("a"))
    engine.step()
    engine.step()
    with pytest.raises(PolicyFault, match=r"raises: rank_sequences raised ValueError"):
        engine.step()


def test_a_policy_is_retired_after_more_than_three_faults(caplog: pytest.LogCaptureFixture) -> None:
    policy = Raises()
    engine, _ = simulated_engine([policy])
    engine.submit(make_request("a", output=8))
    with caplog.at_level(logging.ERROR, logger="jitney"):
        outputs = [engine.step() for _ in range(8)]
    assert policy.asked == 4
    assert [output.policy_version for output in outputs] == [1, 1, 1, 2, 2, 2, 2, 2]
    assert [output.stats.policy_faults for output in outputs if output.stats][:5] == [{"raises": 1}] * 4 + [{}]
    assert any("raises is retired" in record.getMessage() for record in caplog.records)
    assert engine.info.policies["rank_sequences"] == ["fcfs"]
    assert [o.finish_reason for o in outputs[-1].finished] == ["length"]


def test_faults_that_are_counted_only_do_not_change_what_is_generated() -> None:
    engine, _ = simulated_engine([Raises()], max_policy_faults=1000)
    calm, _ = simulated_engine()
    assert run(engine, make_request("a", output=8)).token_ids == run(calm, make_request("a", output=8)).token_ids
    assert engine.state.num_faults > 3


def test_held_results_go_out_at_a_fault() -> None:
    engine, _ = simulated_engine([NeverDelivers(), Raises(since=4)])
    simulation = run(engine, make_request("a", output=9))
    assert simulation.first_tokens["a", 0] == 4


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (IterationPlan({0: 11}), "11 tokens of sequence 0"),
        (IterationPlan({7: 1}), "neither runs nor waits"),
        (IterationPlan({0: 0}), "plans 0 tokens"),
        (IterationPlan({0: 1.5}), "plans 1.5 tokens"),  # type: ignore[dict-item]
        (IterationPlan({}, True, 65), "65 idle rows"),
        ({0: 1}, "not an IterationPlan"),
    ],
)
def test_an_illegal_plan_is_named_and_the_next_planner_asked(plan: Any, complaint: str) -> None:
    class Plans:
        @hookimpl
        def plan_iteration(self) -> Any:
            return plan

    strict, _ = simulated_engine([Plans()], strict=True)
    strict.submit(make_request("a", prompt=10))
    with pytest.raises(PolicyFault, match=complaint):
        strict.step()
    engine, recorder = with_recorder(Plans())
    engine.submit(make_request("a", prompt=10))
    engine.step()
    assert recorder.records()[0].num_tokens == {0: 10}


def test_a_plan_for_more_seats_than_there_are_is_illegal() -> None:
    class Everybody:
        @hookimpl
        def plan_iteration(self, waiting: Any) -> IterationPlan:
            return IterationPlan({sequence.id: sequence.num_pending_tokens for sequence in waiting})

    engine, _ = simulated_engine([Everybody()], strict=True, sequence_limit=2)
    for name in "abc":
        engine.submit(make_request(name, prompt=5))
    with pytest.raises(PolicyFault, match="sequence 2"):
        engine.step()


def test_a_plan_that_leaves_out_what_must_run_gets_it_all_the_same() -> None:
    class MustRun:
        @hookimpl
        def rank_sequences(self) -> Any:
            return [], {1}

        @hookimpl
        def plan_iteration(self) -> IterationPlan:
            return IterationPlan({0: 3})

    engine, recorder = with_recorder(MustRun())
    for name in "ab":
        engine.submit(make_request(name, prompt=20))
    engine.step()
    assert recorder.records()[0].num_tokens == {1: 16, 0: 3}


def test_an_allocator_that_cheats_is_a_fault_of_its_policy() -> None:
    class Cheats:
        @hookimpl
        def create_block_allocator(self) -> Any:
            return self

        def allocate(self, num_blocks: int) -> list[int]:
            return [0] * num_blocks

        def release(self, blocks: list[int]) -> None:
            """Not reached."""

    engine, _ = simulated_engine([Cheats()])
    simulation = run(engine, make_request("a", prompt=40, output=3))
    assert simulation.outcomes["a"].finish_reason == "length"
    assert engine.state.num_faults == 1
