from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.cost import CostModel, Load
from core_engine.errors import ConfigurationError
from core_engine.plan import IterationRecord, RecordedRow
from core_engine.view import EngineView
from plugins.prefill_share import PrefillShare, PrefillShareOptions
from tests.engine.helpers import make_sequence
from tests.plugins.runs import Run, cases, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload

DECODE = make_sequence(1, prompt=9, output=1, computed=9, blocks=[0], running=True)


def view(*running: Any, row_flops: float = 1.0, attention_flops: float = 0.0) -> Any:
    return SimpleNamespace(running=list(running), block_size=16, cost_model=CostModel(row_flops, attention_flops))


def row(computed: int, tokens: int, *, decode: bool) -> RecordedRow:
    return RecordedRow(1, "r", 0, "t", "c", computed, tokens, tokens, decode)


def record(prompt_tokens: int, decode_rows: int) -> IterationRecord:
    rows = [row(0, prompt_tokens, decode=False)] * bool(prompt_tokens) + [row(99, 1, decode=True)] * decode_rows
    return IterationRecord(
        iteration=1, started_seconds=0, duration_seconds=1, policy_version=1, rows=tuple(rows),
        prefill_tokens=prompt_tokens, decode_tokens=decode_rows, idle_rows=0, started=(), preempted={}, finished={},
        held={}, shortages={}, num_running=1, num_waiting=0, num_free_blocks=1, delivered=True,
    )  # fmt: skip


def test_boarding_pauses_above_one_share_and_goes_on_at_another() -> None:
    gate = PrefillShare(PrefillShareOptions(pause_share=0.5, resume_share=0.25, window=1), 0)
    answers = []
    for prompts, decodes in ((50, 50), (51, 49), (40, 60), (26, 74), (25, 75), (50, 50)):
        gate.on_iteration_end(record(prompts, decodes), view())
        answers.append(gate.limit_prefill(view(DECODE)) is not None)
    assert answers == [False, True, True, True, False, False]


def test_a_pause_holds_new_ones_and_leaves_chunks_alone() -> None:
    gate = PrefillShare(PrefillShareOptions(window=1), 0)
    gate.on_iteration_end(record(60, 4), view())
    limit = gate.limit_prefill(view(DECODE))
    assert limit is not None
    assert (limit.new_sequences, limit.prompt_tokens, limit.seconds) == (0, None, None)
    assert limit.reason


def test_no_opinion_while_no_decode_runs() -> None:
    gate = PrefillShare(PrefillShareOptions(window=1), 0)
    gate.on_iteration_end(record(60, 0), view())
    assert gate.limit_prefill(view()) is None
    assert gate.limit_prefill(view(make_sequence(2, prompt=50, computed=20, running=True))) is None
    assert gate.limit_prefill(view(DECODE)) is not None


def test_no_opinion_before_anything_ran() -> None:
    assert PrefillShare(PrefillShareOptions(), 0).limit_prefill(view(DECODE)) is None


def test_a_capped_chunk_keeps_the_share_of_this_iteration() -> None:
    gate = PrefillShare(PrefillShareOptions(pause_share=0.5, resume_share=0.1, action="cap_tokens", window=1), 0)
    gate.on_iteration_end(record(60, 4), view())
    limit = gate.limit_prefill(view(*[DECODE] * 40))
    assert limit is not None
    assert (limit.new_sequences, limit.prompt_tokens) == (0, 40)


def test_a_capped_chunk_is_never_below_one_block() -> None:
    gate = PrefillShare(PrefillShareOptions(action="cap_tokens", window=1), 0)
    gate.on_iteration_end(record(60, 4), view())
    limit = gate.limit_prefill(view(DECODE))
    assert limit is not None
    assert limit.prompt_tokens == 16


def test_compute_counts_attention_too() -> None:
    gate = PrefillShare(PrefillShareOptions(window=1), 0)
    gate.on_iteration_end(record(3, 3), view(row_flops=0.0, attention_flops=1.0))
    assert gate.share == pytest.approx(6 / (6 + 300))


def test_time_counts_what_the_cost_model_predicts() -> None:
    slow_rows = view()
    for _ in range(200):
        slow_rows.cost_model.learn(Load.of([(99, 1)] * 4), 0.010)
        slow_rows.cost_model.learn(Load.of([(99, 1)] * 4 + [(0, 64)]), 0.040)
    gate = PrefillShare(PrefillShareOptions(measure="time", action="cap_tokens", window=1), 0)
    gate.on_iteration_end(record(64, 4), slow_rows)
    assert gate.share == pytest.approx(0.75, abs=0.05)
    slow_rows.running = [DECODE] * 4
    limit = gate.limit_prefill(slow_rows)
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
        gate.on_iteration_end(record(prompts, decodes), view())
        before = gate.paused
        gate.limit_prefill(view(DECODE))
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
