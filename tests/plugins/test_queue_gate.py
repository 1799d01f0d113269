from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_engine.view import EngineView
from plugins.queue_gate import QueueGate, QueueGateOptions
from tests.plugins.runs import Run, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload


def look(view: EngineView) -> tuple[int, int]:
    return len(view.running), sum(s.num_pending_tokens > 1 for s in view.running)


@modestly
@given(cases, st.none() | st.integers(1, 6), st.integers(1, 6))
def test_nobody_starts_beyond_either_bound(
    case: tuple[Machine, Workload], max_running: int | None, max_prefilling: int
) -> None:
    machine, workload = case
    gate = QueueGate(QueueGateOptions(max_running=max_running, max_prefilling=max_prefilling), 0)
    run = run_on(machine, gate, look=look).all_of(workload)
    for (running, prefilling), record in zip(run.witness.seen, run.records, strict=True):
        if record.started and running:
            assert running + len(record.started) <= (max_running or machine.sequence_limit)
            assert prefilling + len(record.started) <= max_prefilling


def test_at_most_so_many_run_under_a_flood() -> None:
    run = Run("queue_gate:max_running=5", look=look)
    run.under_flood(flood("r", [(20, 30)]), until=lambda: len(run.records) == 100)
    assert max(record.num_running for record in run.records) == 5


def test_at_most_so_many_are_in_their_prompts() -> None:
    run = Run("queue_gate:max_prefilling=2", look=look)
    run.submit(*(make_request(f"r{i}", 100, 5) for i in range(4)))
    assert run.planned(run.step()) == {"r0": 64}
    assert run.planned(run.step()) == {"r0": 36, "r1": 28}
    assert run.planned(run.step()) == {"r0": 1, "r1": 63}


def test_the_sequence_limit_is_the_default() -> None:
    run = Run("queue_gate:max_prefilling=8", sequence_limit=8).submit(*(make_request(f"r{i}", 2, 9) for i in range(9)))
    assert run.step().num_running == 8


def test_the_reason_names_the_bound_that_holds() -> None:
    run = Run("queue_gate:max_running=2").submit(*(make_request(f"r{i}", 5, 9) for i in range(4)))
    run.step()
    assert run.step().held == {"queue_gate: enough sequences run": 2}
    run = Run("queue_gate:max_prefilling=1").submit(*(make_request(f"r{i}", 100, 9) for i in range(3)))
    run.step()
    assert run.step().held == {"queue_gate: enough sequences are in their prompts": 2}
