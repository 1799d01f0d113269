"""Probation: what a swap puts in force is confirmed, or taken back with the objects of before."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.engine import Engine
from core_engine.hookspecs import hookimpl
from core_engine.lab.simulate import Simulation
from core_engine.objectives import Objective
from core_engine.plan import PrefillLimit
from core_engine.selection import NamedPolicy
from core_engine.testkit import simulated_engine
from tests.swap.support import Listens, RaisesAfter, Told, in_force, policy_set, request


def keep_busy(engine: Engine, iterations: int, simulation: Simulation | None = None) -> list[Any]:
    """Step with six requests in the engine at any time; returns the outputs."""
    outputs = []
    for _ in range(iterations):
        for number in range(6 - len(engine.state.requests)):
            engine.submit(request(f"r{engine.state.iteration}-{number}"))
        output = engine.step()
        outputs.append(output)
        if simulation is not None:
            simulation.add(output)
    return outputs


def kinds(outputs: list[Any]) -> list[str]:
    return [event.kind for output in outputs for event in output.policy_events]


def test_a_policy_that_starts_raising_after_50_iterations_is_rolled_back_and_clients_see_nothing() -> None:
    engine, _ = simulated_engine(["shortest_first"], probation_iterations=200)
    before = in_force(engine)
    simulation = Simulation()
    keep_busy(engine, 10, simulation)
    bad = RaisesAfter(50)
    engine.adopt_policies(policy_set(engine, NamedPolicy("bad", bad)))
    outputs = keep_busy(engine, 53, simulation)
    assert kinds(outputs) == ["adopted"]
    assert in_force(engine)["bad"] is bad
    outputs = keep_busy(engine, 1, simulation)  # the fourth fault
    assert kinds(outputs) == ["rolled_back"]
    assert in_force(engine) == before
    assert all(in_force(engine)[name] is policy for name, policy in before.items())
    report = engine.describe_policies()
    history, on_probation = report.history, report.on_probation
    assert [(event.kind, event.version, event.policies) for event in history] == [
        ("adopted", 2, ("bad",)),
        ("rolled_back", 3, ("shortest_first",)),
    ]
    assert "4 faults" in history[-1].reason
    assert not on_probation
    assert bad.left == -4
    keep_busy(engine, 30, simulation)
    assert simulation.errors == {}
    assert all(len(tokens) <= 8 for tokens in simulation.token_ids.values())
    assert all(len(simulation.token_ids[name, 0]) == 8 for name in simulation.outcomes)
    assert bad.left == -4  # nobody asks it any more


def test_what_keeps_its_word_is_confirmed_after_the_probation() -> None:
    engine, _ = simulated_engine([], probation_iterations=20)
    engine.adopt_policies(engine.build_policies(("orca",)))
    assert engine.describe_policies().on_probation
    assert kinds(keep_busy(engine, 20)) == ["adopted", "confirmed"]
    assert not engine.describe_policies().on_probation
    assert "orca" in in_force(engine)
    assert engine.describe_policies().history[-1].version == 2  # nothing has changed


def test_faults_after_the_probation_retire_the_policy_alone() -> None:
    engine, _ = simulated_engine([], probation_iterations=20)
    told = Told()
    engine.adopt_policies(policy_set(engine, NamedPolicy("bad", RaisesAfter(30)), NamedPolicy("told", told)))
    outputs = keep_busy(engine, 40)
    assert kinds(outputs) == ["adopted", "confirmed", "retired"]
    history = engine.describe_policies().history
    assert history[-1].policies == ("told",)
    assert history[-1].version == 3
    assert "bad: 4 faults in 1000 iterations, the last: rank_sequences raised" in history[-1].reason
    assert in_force(engine)["told"] is told


def test_a_set_that_replaces_one_on_probation_goes_back_to_the_last_good_one() -> None:
    engine, _ = simulated_engine(["shortest_first"], probation_iterations=50)
    before = in_force(engine)
    engine.adopt_policies(engine.build_policies(("orca",)))
    keep_busy(engine, 10)
    engine.adopt_policies(policy_set(engine, NamedPolicy("bad", RaisesAfter(0))))
    assert kinds(keep_busy(engine, 4)) == ["adopted", "rolled_back"]
    assert in_force(engine) == before


def test_faults_of_before_do_not_count() -> None:
    engine, _ = simulated_engine([], probation_iterations=50, max_policy_faults=3)
    flaky = NamedPolicy("flaky", RaisesAfter(1 << 40))
    engine.adopt_policies(policy_set(engine, flaky))
    keep_busy(engine, 3)
    flaky.policy.left = 0
    keep_busy(engine, 3)  # three faults: tolerated
    flaky.policy.left = 1 << 40
    engine.adopt_policies(policy_set(engine, flaky))
    keep_busy(engine, 3)
    flaky.policy.left = 0
    assert kinds(keep_busy(engine, 3)) == []
    assert kinds(keep_busy(engine, 1)) == ["rolled_back"]


class Dawdles:
    """Lets one request in at a time: everybody waits long for the first token."""

    @hookimpl
    def limit_prefill(self, view: Any) -> Any:
        return PrefillLimit(new_sequences=0 if view.running else 1, reason="dawdles")


OBJECTIVES = {"standard": Objective(time_to_first_token_seconds=0.3)}


def test_objectives_met_clearly_less_than_before_roll_back() -> None:
    engine, _ = simulated_engine(["orca"], objectives=OBJECTIVES, probation_iterations=5000)
    before = in_force(engine)
    keep_busy(engine, 100)
    assert sum(engine._swapping._attainment.recent) >= 30
    engine.adopt_policies(policy_set(engine, NamedPolicy("dawdles", Dawdles())))
    outputs = keep_busy(engine, 400)
    assert kinds(outputs) == ["adopted", "rolled_back"]
    assert in_force(engine) == before
    history = engine.describe_policies().history
    assert history[-1].reason == "objectives are met clearly less often than before"
    assert history[-1].iteration < 500


def test_the_verdicts_on_a_set_that_was_taken_back_are_forgotten() -> None:
    engine, _ = simulated_engine([], objectives=OBJECTIVES, probation_iterations=5000)
    keep_busy(engine, 100)
    before = list(engine._swapping._attainment.recent)
    assert all(before)
    engine.adopt_policies(policy_set(engine, NamedPolicy("dawdles", Dawdles())))
    while "dawdles" in in_force(engine):
        keep_busy(engine, 1)
        assert engine.state.iteration < 1000
    assert list(engine._swapping._attainment.recent) == before


def test_each_candidate_is_judged_by_its_own_verdicts() -> None:
    engine, _ = simulated_engine([], objectives=OBJECTIVES, probation_iterations=100)
    keep_busy(engine, 100)
    engine.adopt_policies(policy_set(engine, NamedPolicy("dawdles", Dawdles())))
    keep_busy(engine, 60)  # many misses, too few to judge by
    engine.adopt_policies(engine.build_policies(("orca",)))
    assert kinds(keep_busy(engine, 150)) == ["adopted", "confirmed"]


def test_objectives_met_as_often_as_before_are_confirmed() -> None:
    engine, _ = simulated_engine([], objectives=OBJECTIVES, probation_iterations=150)
    keep_busy(engine, 100)
    engine.adopt_policies(engine.build_policies(("orca",)))
    assert kinds(keep_busy(engine, 160)) == ["adopted", "confirmed"]


def test_an_iteration_belongs_to_the_set_that_decided_it() -> None:
    old, new = Listens(), Listens()
    engine, _ = simulated_engine([NamedPolicy("old", old)])
    keep_busy(engine, 2)
    bad = RaisesAfter(0)
    engine.adopt_policies(policy_set(engine, NamedPolicy("bad", bad), NamedPolicy("new", new)))
    outputs = keep_busy(engine, 4)
    assert kinds(outputs) == ["adopted", "rolled_back"]
    outputs += keep_busy(engine, 1)
    assert [output.policy_version for output in outputs] == [2, 2, 2, 2, 3]
    assert [record.policy_version for record in new.records] == [2, 2, 2, 2]
    assert [record.policy_version for record in old.records] == [1, 1, 3]


@pytest.mark.parametrize("hook", ["on_adopt", "on_retire"])
def test_a_fault_at_the_swap_itself_is_isolated(hook: str) -> None:
    class Fails:
        @hookimpl
        def on_adopt(self) -> None:
            if hook == "on_adopt":
                raise RuntimeError("no")

        @hookimpl
        def on_retire(self) -> None:
            if hook == "on_retire":
                raise RuntimeError("no")

    engine, _ = simulated_engine([NamedPolicy("fails", Fails())])
    told = NamedPolicy("told", Told())
    engine.adopt_policies(policy_set(engine, told))
    engine.adopt_policies(policy_set(engine, NamedPolicy("fails", Fails())))
    engine.adopt_policies(policy_set(engine, told))
    assert told.policy.told == ["adopt", "retire", "adopt"]
    outputs = keep_busy(engine, 3)
    assert outputs[0].stats.policy_faults["fails"] == (1 if hook == "on_adopt" else 2)
    assert outputs[-1].policy_version == 4
