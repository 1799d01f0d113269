from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import ConfigurationError
from core_engine.view import EngineView
from plugins.length_gate import LengthGate, LengthGateOptions
from tests.plugins.runs import Run, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload

BANDS = "length_gate:bands=[[16,0],[40,5],[null,9]]"


def test_short_prompts_board_at_any_time_and_longer_ones_once_decodes_have_come_further() -> None:
    run = Run(BANDS).submit(make_request("a", 10, 30))
    run.step()  # its first token
    run.submit(make_request("long", 41, 1), make_request("middle", 40, 1), make_request("short", 16, 1))
    run.step(10)
    first = {run.names[i]: record.iteration for record in run.records for i in record.started}
    # `a` has emitted n tokens before iteration n + 1; `short` is over before it could count.
    assert first == {"a": 1, "short": 2, "middle": 6, "long": 10}


def test_progress_is_the_mean_of_all_running_decodes() -> None:
    run = Run(BANDS).submit(make_request("a", 10, 30))
    run.step(8)
    run.submit(make_request("b", 10, 30))
    run.step()  # 9 and 1 tokens
    run.submit(make_request("middle", 40, 5))
    assert run.step().num_running == 3
    run = Run(BANDS).submit(make_request("a", 10, 30))
    run.step(6)
    run.submit(make_request("b", 10, 30))
    run.step()  # 7 and 1
    run.submit(make_request("middle", 40, 5))
    record = run.step()
    assert record.num_running == 2
    assert record.held == {"length_gate: running decodes have emitted fewer than 5 tokens on average": 1}


def test_no_opinion_while_no_decode_runs() -> None:
    run = Run(BANDS).submit(make_request("a", 60, 2), make_request("b", 30, 2))
    assert run.planned(run.step()) == {"a": 60, "b": 4}


def test_nobody_is_held_beyond_the_bound_however_short_the_others_are() -> None:
    run = Run(f"{BANDS},max_hold_iterations=20", sequence_limit=8, num_blocks=200)
    run.submit(make_request("a", 10, 3), make_request("b", 10, 3))
    run.step()
    run.submit(make_request("long", 60, 3))
    run.under_flood(flood("short", [(8, 2)]), until=lambda: run.has_ended("long"), backlog=4)
    held = [record.iteration for record in run.records if any("fewer than 9" in reason for reason in record.held)]
    assert held == list(range(2, 2 + 20))


def look(gate: LengthGate) -> Any:
    def held(view: EngineView) -> list[tuple[int, int]]:
        limit = gate.limit_prefill(view)
        sequences = [view.get(i) for i in limit.held] if limit else []
        return [(s.num_prompt_tokens, view.iteration - s.arrival_iteration) for s in sequences if s]

    return held


@modestly
@given(cases, st.integers(1, 30), st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_the_short_are_never_held_and_nobody_for_long(
    case: tuple[Machine, Workload], max_hold: int, progress: list[int]
) -> None:
    machine, workload = case
    bands = ((8, 0), (20, progress[0]), (60, progress[1]), (None, progress[2]))
    gate = LengthGate(LengthGateOptions(bands=bands, max_hold_iterations=max_hold), 0)
    run = run_on(machine, gate, look=look(gate)).all_of(workload)
    for held in run.witness.seen:
        assert all(prompt > 8 and waited < max_hold for prompt, waited in held)


@pytest.mark.parametrize("bands", ["[]", "[[20,0],[10,5]]", "[[null,0],[10,5]]"])
def test_bands_that_do_not_ascend_are_refused(bands: str) -> None:
    with pytest.raises(ConfigurationError, match=r"length_gate.*ascend"):
        Run(f"length_gate:bands={bands}")


@pytest.mark.parametrize("bands", ["[[0,0]]", "[[10,-1]]", "[[10]]", "5"])
def test_bands_out_of_range_are_refused(bands: str) -> None:
    with pytest.raises(ConfigurationError, match=r"length_gate.*bands"):
        Run(f"length_gate:bands={bands}")


def test_prompts_beyond_the_last_band_belong_to_it() -> None:
    run = Run("length_gate:bands=[[16,0],[40,5]]").submit(make_request("a", 10, 30))
    run.step()
    run.submit(make_request("long", 60, 1))
    run.step(10)
    assert [record.iteration for record in run.records if record.started] == [1, 6]
