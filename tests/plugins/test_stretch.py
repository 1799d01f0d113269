from __future__ import annotations

import copy
import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.cost import CostModel, Load
from core_engine.errors import ConfigurationError
from core_engine.lab.simulated import SimulatedModel
from core_engine.view import EngineView
from plugins.stretch import Stretch, StretchOptions
from tests.plugins.runs import Run, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload


def look(view: EngineView) -> tuple[CostModel, Load, int]:
    """What the gate goes by: the cost model of that moment, the decodes, and how far the longest prompt has come."""
    decodes = Load.of((s.num_computed_tokens, 1) for s in view.running if s.num_pending_tokens == 1)
    deepest = max((s.num_computed_tokens for s in view.running if s.num_pending_tokens > 1), default=0)
    return copy.deepcopy(view.cost_model), decodes, deepest


def check_bound(run: Run, max_stretch: float, max_seconds: float = float("inf")) -> int:
    """Every iteration with decodes kept the bound; returns in how many prompts ran too."""
    mixed = 0
    for (cost, decodes, deepest), record in zip(run.witness.seen, run.records, strict=True):
        if decodes.rows:
            everything = Load.of((row.num_computed_tokens, row.num_tokens) for row in record.rows)
            allowed = min(max_stretch * cost.estimate(decodes), max_seconds)
            least = cost.estimate(decodes.plus(deepest, run.engine.state.block_size))
            assert cost.estimate(everything) <= max(allowed, least) * (1 + 1e-9), record
            mixed += everything.rows > decodes.rows
    return mixed


@modestly
@given(cases, st.floats(1, 20), st.none() | st.floats(0.001, 0.1))
def test_the_predicted_time_keeps_the_bound(case: tuple[Machine, Workload], stretch: float, seconds: float) -> None:
    machine, workload = case
    gate = Stretch(StretchOptions(max_stretch=stretch, max_seconds=seconds), 0)
    run = run_on(machine, gate, look=look).all_of(workload)
    check_bound(run, stretch, seconds or float("inf"))


@pytest.mark.parametrize("row_seconds", [0.0001, 0.002])
@pytest.mark.parametrize("lengths", [[(200, 20)], [(5, 40), (600, 3)]])
def test_the_predicted_time_keeps_the_bound_under_a_flood(lengths: list[tuple[int, int]], row_seconds: float) -> None:
    model = SimulatedModel(row_seconds=row_seconds)
    run = Run("stretch:max_stretch=2.5", look=look, token_limit=256, num_blocks=400, model=model)
    run.under_flood(flood("r", lengths), until=lambda: len(run.records) == 400)
    assert check_bound(run, 2.5) > 50


def gaps(*policies: str, block_size: int = 16) -> tuple[float, float, float]:
    """A long prompt among eight streams: longest gap of a stream and median gap before, and its time to first token."""
    model = SimulatedModel(base_seconds=0.010, row_seconds=0.0005)
    limits = {"token_limit": 512, "sequence_limit": 16, "num_blocks": 800, "block_size": block_size, "model": model}
    run = Run(*policies, **limits)
    run.submit(*(make_request(f"stream-{i}", 10, 400) for i in range(8)))
    run.step(100)
    alone = statistics.median(record.duration_seconds for record in run.records[-50:])
    run.submit(make_request("long", 3000, 2))
    arrived, start = run.clock.now(), len(run.records)
    while ("long", 0) not in run.simulation.first_tokens:
        run.step()
    waited = run.clock.now() - arrived
    times = [r.started_seconds for r in run.records[start - 1 :] if any(row.request_id == "stream-0" for row in r.rows)]
    return max(b - a for a, b in itertools.pairwise([*times, run.clock.now()])), alone, waited


def test_streams_keep_going_while_a_long_prompt_is_computed() -> None:
    gap, alone, waited = gaps("stretch:max_stretch=4")
    free_gap, _, free_waited = gaps()
    assert gap <= 5 * alone
    assert waited <= 3 * free_waited
    assert free_gap > 10 * alone


def test_streams_keep_going_in_a_flood_that_meets_an_engine_which_has_seen_no_decodes_alone() -> None:
    base, row, most = 0.010, 0.002, 3.0
    model = SimulatedModel(base_seconds=base, row_seconds=row, attention_pair_seconds=0, kv_token_seconds=0)
    run = Run(f"stretch:max_stretch={most}", token_limit=256, sequence_limit=64, num_blocks=2000, model=model)
    run.finish(*(make_request(f"r-{i}", 200, 60) for i in range(32)))
    mixed = [r for r in run.records if r.decode_tokens and r.prefill_tokens]
    assert len(mixed) > 32
    for record in mixed:
        allowed = max(most * (base + row * record.decode_tokens), base + row * (record.decode_tokens + 16))
        assert record.duration_seconds <= 1.1 * allowed, record


def test_an_absolute_bound_holds_too() -> None:
    gap, alone, _ = gaps("stretch:max_stretch=1000,max_seconds=0.05")
    assert 2 * alone < gap <= 0.055


def test_chunks_are_never_below_a_block() -> None:
    run = Run("stretch:max_stretch=1").submit(make_request("a", 10, 50))
    run.step(20)
    run.submit(make_request("b", 60, 1))
    assert [run.planned(run.step())["b"] for _ in range(4)] == [16, 16, 16, 12]


def test_no_opinion_while_no_decode_runs() -> None:
    run = Run("stretch:max_stretch=1", token_limit=256).submit(make_request("a", 200, 5), make_request("b", 56, 5))
    assert run.planned(run.step()) == {"a": 200, "b": 56}


def test_holds_are_recorded_with_their_reason() -> None:
    run = Run("stretch:max_stretch=1").submit(make_request("a", 10, 50))
    run.step(20)
    run.submit(make_request("b", 60, 1))
    assert run.step().held == {"stretch: prompts would prolong the iteration too much": 1}


@pytest.mark.parametrize("option", ["max_stretch=0.5", "max_seconds=0"])
def test_options_out_of_range_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=r"stretch.*" + option.partition("=")[0]):
        Run(f"stretch:{option}")
