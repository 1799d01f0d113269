from __future__ import annotations

from hypothesis import given

from tests.plugins.runs import Run, cases, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload


def test_a_newcomers_prompt_runs_without_the_decodes() -> None:
    run = Run("prefill_first").submit(make_request("a", 10, 30))
    run.step()
    run.submit(make_request("b", 100, 5))
    assert run.planned(run.step()) == {"b": 64}
    assert run.planned(run.step()) == {"b": 36}
    assert run.planned(run.step()) == {"a": 1, "b": 1}


def test_decodes_run_while_no_newcomer_finds_a_seat() -> None:
    run = Run("prefill_first", sequence_limit=1).submit(make_request("a", 10, 5))
    run.step()
    run.submit(make_request("b", 10, 5))
    assert run.planned(run.step()) == {"a": 1}


def test_decodes_run_while_no_newcomer_finds_blocks() -> None:
    run = Run("prefill_first", num_blocks=3, block_size=16).submit(make_request("a", 30, 5))
    run.step()
    run.submit(make_request("b", 20, 5))
    assert run.planned(run.step()) == {"a": 1}


def test_a_stream_stalls_for_as_long_as_prompts_come_but_for_the_engines_care() -> None:
    run = Run("prefill_first").submit(make_request("a", 10, 30))
    run.step()
    run.submit(make_request("b", 640, 1))
    decodes = [run.planned(run.step()).get("a", 0) for _ in range(10)]
    assert decodes == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@modestly
@given(cases)
def test_no_iteration_holds_both_but_for_the_oldest(case: tuple[Machine, Workload]) -> None:
    machine, workload = case
    run = run_on(machine, "prefill_first").all_of(workload)
    for record in run.records:
        # A newcomer may find all of its prompt but one token computed.
        decodes = [row for row in record.rows if row.is_decode and row.sequence_id not in record.started]
        if len(decodes) < len(record.rows):
            assert len(decodes) <= 1, record
