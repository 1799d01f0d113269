"""Finite workloads under any policy: everything ends, once, with the right tokens, within every budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_engine.lab.simulate import Recorder, Simulation
from tests.simulation.hostile import Hostile
from tests.simulation.support import (
    Machine,
    Workload,
    check_budgets,
    check_empty,
    check_outcomes,
    hostilities,
    iteration_bound,
    machines,
    workloads,
)

cases = machines().flatmap(lambda machine: st.tuples(st.just(machine), workloads(machine)))


def undisturbed(machine: Machine, workload: Workload) -> Simulation:
    """The same requests, none cancelled, in an engine with the defaults and room for all."""
    roomy = Machine(num_blocks=1000, block_size=machine.block_size, token_limit=4096, sequence_limit=64)
    return Workload(workload.wishes).run(roomy.engine([], check_integrity=False)[0], 100_000)


def run_and_check(machine: Machine, workload: Workload, policies: list[object], **options: int) -> None:
    recorder = Recorder()
    engine, _ = machine.engine([*policies, recorder], **options)
    simulation = workload.run(engine, iteration_bound(machine, workload))
    check_outcomes(workload, undisturbed(machine, workload), simulation)
    check_budgets(machine, recorder.records())
    check_empty(machine, engine)


@given(cases, hostilities())
def test_hostile_policies_that_are_never_retired(case: tuple[Machine, Workload], hostile: Hostile) -> None:
    run_and_check(*case, [hostile], max_policy_faults=1 << 40)


@given(cases, hostilities(), st.integers(0, 3))
def test_hostile_policies_that_are_retired(case: tuple[Machine, Workload], hostile: Hostile, faults: int) -> None:
    run_and_check(*case, [hostile], max_policy_faults=faults)


@given(
    cases,
    st.sampled_from(
        [
            "stall_free",
            "paged:headroom=0",
            "paged:headroom=4",
            "prefix_cache",
            "orca",
            "orca:max_batch=2,output=predicted",
            "static_batch",
            "static_batch:batch_size=2,reserve=max",
            "static_batch:batch_size=3,keep_finished_rows=true,pad=true",
        ]
    ),
    hostilities(),
)
def test_our_own_planners_beside_a_hostile_policy(
    case: tuple[Machine, Workload], policy: str, hostile: Hostile
) -> None:
    run_and_check(*case, [policy, hostile], max_policy_faults=1 << 40)
