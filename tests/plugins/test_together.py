"""Policies beside each other: whatever is named together, every request ends, and within every budget."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.runs import cases, modestly, run_on
from tests.simulation.support import Machine, Workload, check_budgets, check_empty

planners = st.sampled_from(["stall_free", "prefill_first", "orca:max_batch=3", "static_batch:batch_size=3"])
ranks = st.sampled_from(
    ["fcfs", "priority:service_tokens=2", "fair_share", "fair_share:charge=tokens",
     "shortest_first:ageing_iterations=9", "deadline"]
)  # fmt: skip
gates = st.lists(
    st.sampled_from(
        ["prefill_share", "prefill_share:action=cap_tokens", "stretch:max_stretch=2", "queue_gate:max_running=2",
         "length_gate:bands=[[8,0],[null,5]]", "warm_up:iterations=30", "kv_feedback:window=4"]
    ),
    unique_by=lambda spec: spec.partition(":")[0],
    max_size=4,
)  # fmt: skip
victims = st.sampled_from(["last_in", "least_lost", "lowest_class"])
memory = st.sampled_from([["paged:headroom=0"], ["reserved"], ["reserved:output=predicted"], ["contiguous"], []])


@modestly
@given(cases, planners, ranks, gates, victims, memory)
def test_every_request_ends(
    case: tuple[Machine, Workload], planner: str, rank: str, gate: list[str], victim: str, kv: list[str]
) -> None:
    machine, workload = case
    policies: list[Any] = [rank, *gate, victim, *kv, planner]
    run = run_on(machine, *policies).all_of(workload)
    check_budgets(machine, run.records)
    check_empty(machine, run.engine)
