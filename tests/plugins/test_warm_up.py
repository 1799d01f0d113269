from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.lab.simulated import SimulatedModel
from plugins.warm_up import WarmUp, WarmUpOptions
from tests.plugins.runs import Run, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload


def test_one_starts_in_the_first_iteration_and_more_in_later_ones() -> None:
    run = Run("warm_up:iterations=10", sequence_limit=21)
    run.submit(*(make_request(f"r{i}", 2, 100) for i in range(21)))
    run.step(6)
    assert [len(record.started) for record in run.records] == [1, 3, 5, 7, 5, 0]


def test_after_the_ramp_everybody_may_start() -> None:
    run = Run("warm_up:iterations=10", sequence_limit=20)
    run.submit(make_request("a", 2, 20))
    run.step(10)
    run.submit(*(make_request(f"r{i}", 2, 10) for i in range(19)))
    assert len(run.step().started) == 19


def test_the_ramp_ends_early_once_the_cost_model_is_steady() -> None:
    def held_until(model: SimulatedModel) -> int:
        run = Run("warm_up:iterations=1000", sequence_limit=8, model=model)
        run.under_flood(flood("r", [(4, 1), (30, 1)]), until=lambda: len(run.records) == 400)
        return max(record.iteration for record in run.records if "warm_up: the engine warms up" in record.held)

    assert held_until(SimulatedModel(row_seconds=0, attention_pair_seconds=0, kv_token_seconds=0)) < 250


@modestly
@given(cases, st.integers(1, 200), st.integers(1, 4))
def test_no_iteration_of_the_ramp_starts_more(case: tuple[Machine, Workload], iterations: int, initial: int) -> None:
    machine, workload = case
    gate = WarmUp(WarmUpOptions(iterations=iterations, initial_starts=initial), 0)
    steady: list[bool] = []
    run = run_on(machine, gate, look=lambda view: steady.append(gate._over)).all_of(workload)
    for over, record in zip(steady, run.records, strict=True):
        if not over:
            more = max(0, machine.sequence_limit - initial) * (record.iteration - 1) / iterations
            assert len(record.started) <= initial + more


@pytest.mark.parametrize("iterations", [1, 7])
def test_it_is_over_after_its_iterations(iterations: int) -> None:
    run = Run(f"warm_up:iterations={iterations}", sequence_limit=8)
    run.under_flood(flood("r", [(4, 2)]), until=lambda: len(run.records) == 20)
    held = [record.iteration for record in run.records if any("warm_up" in reason for reason in record.held)]
    assert max(held, default=0) <= iterations
