from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.cost import CostModel, Load
from core_engine.errors import ConfigurationError
from core_engine.view import EngineView
from plugins.prefill_share import PrefillShare, PrefillShareOptions
from tests.engine.helpers import make_sequence
from tests.plugins.runs import Run, cases, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload

DECODE = make_sequence(1, prompt=9, output=1, computed=9, blocks=[0], running=True)


def view(*running: Any, last: tuple[int, int] = (0, 0), cost: CostModel | None = None) -> Any:
    """These run; the last iteration computed a prompt of so many tokens and so many decodes, of 99 tokens each."""
    prompt_tokens, decode_rows = last
    prompts = Load.of([(0, prompt_tokens)] * bool(prompt_tokens))
    decodes = Load.of([(99, 1)] * decode_rows)
    everything = Load(
        prompts.rows + decodes.rows,
        prompts.attention_pairs + decodes.attention_pairs,
        prompts.kv_tokens + decodes.kv_tokens,
    )
    return SimpleNamespace(
        decode_load=Load.of_decodes([s.num_computed_tokens for s in running if s.num_pending_tokens == 1]),
        last_load=everything,
        last_decode_load=decodes,
        block_size=16,
        cost_model=cost or CostModel(1.0, 0.0),
    )


def test_boarding_pauses_above_one_share_and_goes_on_at_another() -> None:
    gate = PrefillShare(PrefillShareOptions(pause_share=0.5, resume_share=0.25, window=1), 0)
    answers = []
    for prompts, decodes in ((50, 50), (51, 49), (40, 60), (26, 74), (25, 75), (50, 50)):
        answers.append(gate.limit_prefill(view(DECODE, last=(prompts, decodes))) is not None)
    assert answers == [False, True, True, True, False, False]


def test_a_pause_holds_new_ones_and_leaves_chunks_alone() -> None:
    gate = PrefillShare(PrefillShareOptions(window=1), 0)
    limit = gate.limit_prefill(view(DECODE, last=(60, 4)))
    assert limit is not None
    assert (limit.new_sequences, limit.prompt_tokens, limit.seconds) == (0, None, None)
    assert limit.reason


def test_no_opinion_while_no_decode_runs() -> None:
    gate = PrefillShare(PrefillShareOptions(window=1), 0)
    assert gate.limit_prefill(view(last=(60, 0))) is None
    assert gate.limit_prefill(view(make_sequence(2, prompt=50, computed=20, running=True), last=(60, 0))) is None
    assert gate.limit_prefill(view(DECODE, last=(60, 0))) is not None


def test_no_opinion_before_anything_ran() -> None:
    assert PrefillShare(PrefillShareOptions(), 0).limit_prefill(view(DECODE)) is None


def test_a_capped_chunk_keeps_the_share_of_this_iteration() -> None:
    gate = PrefillShare(PrefillShareOptions(pause_share=0.5, resume_share=0.1, action="cap_tokens", window=1), 0)
    limit = gate.limit_prefill(view(*[DECODE] * 40, last=(60, 4)))
    assert limit is not None
    assert (limit.new_sequences, limit.prompt_tokens) == (0, 40)


def test_a_capped_chunk_is_never_below_one_block() -> None:
    gate = PrefillShare(PrefillShareOptions(action="cap_tokens", window=1), 0)
    limit = gate.limit_prefill(view(DECODE, last=(60, 4)))
    assert limit is not None
    assert limit.prompt_tokens == 16


def test_compute_counts_attention_too() -> None:
    gate = PrefillShare(PrefillShareOptions(window=1), 0)
    gate.limit_prefill(view(last=(3, 3), cost=CostModel(0.0, 1.0)))
    assert gate.share == pytest.approx(6 / (6 + 300))


def test_time_counts_what_the_cost_model_predicts() -> None:
    slow_rows = CostModel(1.0, 0.0)
    for _ in range(200):
        slow_rows.learn(Load.of([(99, 1)] * 4), 0.010)
        slow_rows.learn(Load.of([(99, 1)] * 4 + [(0, 64)]), 0.040)
    gate = PrefillShare(PrefillShareOptions(measure="time", action="cap_tokens", window=1), 0)
    limit = gate.limit_prefill(view(*[DECODE] * 4, last=(64, 4), cost=slow_rows))
    assert gate.share == pytest.approx(0.75, abs=0.05)
    assert limit is not None
    assert limit.prompt_tokens is None
    assert limit.seconds is not None
    assert 0 < limit.seconds < 0.030


def test_a_resume_share_above_the_pause_share_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"prefill_share.*resume_share 0.3 is above pause_share 0.2"):
        Run("prefill_share:pause_share=0.2")


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=60),
    st.floats(0.05, 0.9),
    st.floats(0.05, 0.9),
    st.integers(1, 20),
)
def test_it_pauses_and_resumes_only_across_the_thresholds(
    iterations: list[tuple[int, int]], one: float, other: float, window: int
) -> None:
    pause, resume = max(one, other), min(one, other)
    gate = PrefillShare(PrefillShareOptions(pause_share=pause, resume_share=resume, window=window), 0)
    for prompts, decodes in iterations:
        before = gate.paused
        gate.limit_prefill(view(DECODE, last=(prompts, decodes)))
        if gate.paused != before:
            assert gate.share > pause if gate.paused else gate.share <= resume
        assert 0 <= gate.share <= 1 + 1e-9


def pausing(gate: PrefillShare) -> Any:
    """Whether the gate pauses while a decode runs."""

    def look(view: EngineView) -> bool:
        return gate.paused and any(s.num_pending_tokens == 1 for s in view.running)

    return look


@modestly
@given(cases, st.sampled_from(["hold_new", "cap_tokens"]), st.sampled_from(["compute", "time"]))
def test_nobody_starts_while_it_pauses(case: tuple[Machine, Workload], action: Any, measure: Any) -> None:
    machine, workload = case
    gate = PrefillShare(PrefillShareOptions(action=action, measure=measure, window=4), 0)
    run = run_on(machine, gate, look=pausing(gate)).all_of(workload)
    for paused, record in zip(run.witness.seen, run.records, strict=True):
        assert not (paused and record.started)


def test_holds_are_recorded_with_their_reason() -> None:
    run = Run("prefill_share:window=1").submit(make_request("a", 60, 30))
    run.step()
    run.step()
    run.submit(make_request("b", 60, 30))
    run.step()
    run.submit(make_request("c", 60, 30))
    record = run.step()
    assert record.held == {"prefill_share: prompts are too large a share of the work": 1}
    assert not record.started
