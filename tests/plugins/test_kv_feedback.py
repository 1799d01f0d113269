from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.plan import MemoryShortage
from plugins.kv_feedback import KvFeedback, KvFeedbackOptions
from tests.engine.helpers import make_sequence
from tests.plugins.runs import Run, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload

RUNNING = make_sequence(1, prompt=9, output=1, computed=9, blocks=[0], running=True)
WAITING = make_sequence(2)


class Pool:
    """The gate in iterations with and without shortages, 32 seats in all."""

    def __init__(self, **options: Any) -> None:
        self.gate = KvFeedback(KvFeedbackOptions(**options), 0)
        self.iteration = 0
        self.limit: Any = None

    def iterate(self, times: int = 1, *, running: int, cause: Any = None, of: Any = None) -> float:
        for _ in range(times):
            self.iteration += 1
            known = {1: RUNNING, 2: WAITING}
            view: Any = SimpleNamespace(
                iteration=self.iteration, running=[None] * running, sequence_limit=32, get=known.get
            )
            if cause is not None:
                event = MemoryShortage(iteration=self.iteration, cause=cause, sequence_id=of, num_blocks=1)
                self.gate.on_memory_shortage(event, view)
            self.limit = self.gate.limit_prefill(view)
        return self.gate.share


def test_no_opinion_before_a_shortage() -> None:
    pool = Pool()
    pool.iterate(100, running=32)
    assert pool.limit is None


def test_a_shortage_halves_what_ran() -> None:
    pool = Pool()
    assert pool.iterate(running=24, cause="next_block") == 12 / 32
    assert pool.limit.new_sequences == 0
    assert pool.limit.reason


def test_it_halves_at_most_once_in_a_window() -> None:
    pool = Pool(window=10)
    assert pool.iterate(10, running=32, cause="next_block") == 0.5
    assert pool.iterate(running=16, cause="next_block") == 0.25


def test_it_recovers_additively_while_there_is_no_shortage() -> None:
    pool = Pool(window=10, increase=0.1)
    pool.iterate(running=16, cause="refused")
    assert pool.iterate(10, running=8) == pytest.approx(0.35)
    assert pool.iterate(5, running=8) == pytest.approx(0.40)
    pool.iterate(61, running=8)
    assert pool.gate.share == 1
    assert pool.limit is None


def test_it_never_falls_below_one_seat() -> None:
    pool = Pool(window=1)
    for _ in range(20):
        pool.iterate(running=1, cause="next_block")
    assert pool.gate.share == 1 / 32
    pool.iterate(running=0, cause="refused")
    assert pool.limit.new_sequences == 1


def test_the_share_bounds_boarding_too() -> None:
    pool = Pool(window=1000)
    pool.iterate(running=32, cause="next_block")
    pool.iterate(running=6)
    assert pool.limit.new_sequences == math.ceil(pool.gate.share * (16 - 6))


def test_a_newcomer_that_finds_no_room_is_no_shortage_but_a_running_prompt_that_stalls_is() -> None:
    pool = Pool()
    assert pool.iterate(running=20, cause="take", of=2) == 1
    assert pool.iterate(running=20, cause="take", of=1) == 10 / 32


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 32)), max_size=120),
    st.integers(1, 80),
    st.floats(0.1, 0.9),
    st.floats(0.001, 1),
)
def test_the_share_stays_in_bounds_and_falls_only_at_a_shortage(
    iterations: list[tuple[bool, int]], window: int, decrease: float, increase: float
) -> None:
    pool = Pool(window=window, decrease=decrease, increase=increase)
    for short, running in iterations:
        before = pool.gate.share
        share = pool.iterate(running=running, cause="next_block" if short else None)
        assert 1 / 32 <= share <= 1
        assert short or share >= before
        assert share - before <= increase / window + 1e-12
        if pool.limit is not None:
            assert running + pool.limit.new_sequences <= max(running, share * 32)


@modestly
@given(cases)
def test_nobody_starts_beyond_the_share(case: tuple[Machine, Workload]) -> None:
    machine, workload = case
    gate = KvFeedback(KvFeedbackOptions(window=8), 0)
    run = run_on(machine, "paged:headroom=0", gate, look=lambda view: (gate.share, len(view.running))).all_of(workload)
    for (share, running), record in zip(run.witness.seen, run.records, strict=True):
        if running and record.started:
            assert running + len(record.started) <= share * machine.sequence_limit


def under_pressure(*policies: str) -> tuple[int, float, float]:
    """KV for 4 of 32 sequences: preemptions, 99th percentile of latency, and output tokens per second."""
    run = Run("paged:headroom=0", *policies, num_blocks=4 * 9, block_size=16, sequence_limit=32, token_limit=128)
    wanted = flood("r", [(40, 100), (24, 120), (60, 84), (16, 60)])
    run.finish(*(next(wanted) for _ in range(100)))
    latencies = sorted(outcome.total_seconds for outcome in run.simulation.outcomes.values())
    tokens = sum(outcome.num_output_tokens for outcome in run.simulation.outcomes.values())
    return run.engine.state.num_preemptions, latencies[round(0.99 * len(latencies)) - 1], tokens / run.clock.now()


def test_a_pool_that_is_too_small_preempts_half_as_often_at_no_cost() -> None:
    preemptions, latency, throughput = under_pressure()
    with_gate = under_pressure("kv_feedback")
    assert preemptions > 50
    assert with_gate[0] <= preemptions / 2
    assert with_gate[1] <= latency
    assert with_gate[2] >= throughput


def test_holds_are_recorded_with_their_reason() -> None:
    run = Run("paged:headroom=0", "kv_feedback", num_blocks=4, block_size=8)
    run.submit(make_request("a", 8, 24), make_request("b", 8, 24))
    while not run.records or not run.records[-1].preempted:
        run.step()
    run.submit(make_request("c", 4, 2))
    run.step()
    assert "kv_feedback: memory ran short" in run.records[-1].held
