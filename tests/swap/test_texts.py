"""Swaps under load: no request is lost, no text changes, every record and message says which set decided."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core_engine.lab.simulate import Recorder
from core_engine.selection import NamedPolicy
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
from tests.simulation.test_finite import undisturbed
from tests.swap.support import NAMES, SPECS, Swapped, policy_set, recorder

cases = machines().flatmap(lambda machine: st.tuples(st.just(machine), workloads(machine, max_requests=5)))


@st.composite
def swaps(draw: st.DrawFn, max_swaps: int = 20) -> dict[int, tuple[str, ...]]:
    """Iterations and the specifications to adopt before them."""
    iteration, found = 1, {}
    for _ in range(draw(st.integers(1, max_swaps))):
        iteration += draw(st.sampled_from([1, 1, 2, 5, 20]))
        specs = draw(st.lists(st.sampled_from(SPECS), max_size=3, unique_by=lambda spec: spec.partition(":")[0]))
        found[iteration] = ("recorder", *specs)
    return found


def test_the_swaps_are_among_all_policies_that_can_be_swapped() -> None:
    assert {"fair_share", "orca", "priority", "stall_free", "static_batch", "queue_limit"} <= set(NAMES)


@given(cases, swaps(), st.sampled_from([1, 5, 1000]))
def test_swaps_among_our_policies(
    case: tuple[Machine, Workload], sets: dict[int, tuple[str, ...]], probation: int
) -> None:
    machine, workload = case
    kept = recorder()
    engine, _ = machine.engine([kept, "paged"], strict=True, probation_iterations=probation)
    swapped = Swapped(engine, sets)
    bound = iteration_bound(machine, workload) + 6 * len(sets)
    simulation = workload.run(swapped, bound)  # type: ignore[arg-type]
    check_outcomes(workload, undisturbed(machine, workload), simulation)
    check_empty(machine, engine)
    assert isinstance(kept.policy, Recorder)
    records = kept.policy.records()
    check_budgets(machine, records)
    check_history(swapped, sets)
    assert [record.policy_version for record in records] == swapped.versions


def check_history(swapped: Swapped, sets: dict[int, tuple[str, ...]]) -> None:
    """Versions count the swaps; every message carries the one that decided it; events say what was adopted."""
    assert [output.policy_version for output in swapped.outputs] == swapped.versions
    assert [event.version for event in swapped.adopted] == list(range(2, 2 + len(swapped.adopted)))
    history = swapped.engine.describe_policies().history
    adopted = [event for event in history if event.kind == "adopted"]
    assert adopted == swapped.adopted
    assert [event.policies for event in adopted] == list(sets.values())[: len(adopted)]
    assert swapped.events() == history
    assert {event.kind for event in history} <= {"adopted", "confirmed"}


@given(cases, hostilities(), hostilities(), st.integers(2, 12), st.sampled_from([0, 3, 1 << 40]))
def test_hostile_policies_adopted_under_load(
    case: tuple[Machine, Workload], first: Hostile, second: Hostile, every: int, faults: int
) -> None:
    """Faults roll back, retire or are borne: nobody loses a request or a token."""
    machine, workload = case
    kept = recorder()
    engine, _ = machine.engine([kept], max_policy_faults=faults, probation_iterations=30)

    def hostile(policy: Hostile) -> Any:
        return policy_set(engine, kept, NamedPolicy("hostile", policy))

    sets = {
        iteration: hostile(first if iteration % 2 else second) if iteration % 3 else ("recorder", "orca")
        for iteration in range(2, 100, every)
    }
    swapped = Swapped(engine, sets)
    bound = iteration_bound(machine, workload) + 6 * len(sets)
    simulation = workload.run(swapped, bound)  # type: ignore[arg-type]
    check_outcomes(workload, undisturbed(machine, workload), simulation)
    check_empty(machine, engine)
    check_budgets(machine, kept.policy.records())
    assert all(output.policy_version >= 1 for output in swapped.outputs)
    assert [event.iteration for event in swapped.events()] == sorted(event.iteration for event in swapped.events())
