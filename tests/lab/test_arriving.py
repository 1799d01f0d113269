"""Requests that arrive over time: when they are answered, and that skipping what is idle changes nothing."""

from __future__ import annotations

import pytest

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.errors import EngineUnavailable
from core_engine.lab.arriving import Answered, run_arriving
from core_engine.lab.timed import TimedExecutor
from core_engine.lab.workloads import Arrival, Lengths, at_once, poisson, requests


def run(arrivals: list[Arrival], *policies: str, alone: list[Answered] | None = None) -> list[Answered]:
    """An iteration takes a second, whatever is in it."""
    clock = VirtualClock(start_seconds=50.0)
    executor = TimedExecutor(clock, lambda rows, heads: 1.0, name="simulated", vocab_size=100, num_sequences=64)
    engine = Engine(EngineConfig(policies=policies, seed=0, strict=True), executor, clock=clock)
    return run_arriving(engine, clock, arrivals, alone or [])


def of_lengths(*output_tokens: int) -> list[Arrival]:
    return list(at_once(requests([Lengths(4, tokens) for tokens in output_tokens], seed=0, vocab_size=100), 2.0))


def test_time_runs_from_arrival_to_delivery() -> None:
    assert run(of_lengths(1, 3)) == [
        Answered(output_tokens=1, seconds=1.0, computed_seconds=1.0),
        Answered(output_tokens=3, seconds=3.0, computed_seconds=3.0),
    ]


def test_a_held_answer_was_computed_earlier() -> None:
    short, _ = run(of_lengths(1, 3), "static_batch")
    assert (short.computed_seconds, short.seconds) == (1.0, 3.0)


@pytest.mark.parametrize("policies", [(), ("static_batch:batch_size=2",)])
@pytest.mark.parametrize("rate", [0.03, 0.2, 5.0])
def test_what_meets_nobody_need_not_be_run_again(policies: tuple[str, ...], rate: float) -> None:
    lengths = [Lengths(4, 1 + 3 * i % 8) for i in range(24)]
    arrivals = list(poisson(requests(lengths, seed=0, vocab_size=100), rate, seed=1))
    alone = [Answered(output_tokens=n, seconds=float(n), computed_seconds=float(n)) for _, n in map(_pair, lengths)]
    whole, shortened = run(arrivals, *policies), run(arrivals, *policies, alone=alone)
    assert [answer.seconds for answer in shortened] == pytest.approx([answer.seconds for answer in whole])


def test_a_refused_request_is_an_error() -> None:
    (arrival,) = at_once(requests([Lengths(5_000, 1)], seed=0, vocab_size=100))
    with pytest.raises(EngineUnavailable, match="request-0 was refused"):
        run([arrival])


def _pair(lengths: Lengths) -> tuple[int, int]:
    return lengths.prompt_tokens, lengths.output_tokens
