"""The profile `chat` in virtual time: gaps between tokens while prompts come, on slow machines and on fast ones."""

from __future__ import annotations

from itertools import islice

import pytest

from core_engine.lab.simulate import simulate
from core_engine.lab.simulated import SimulatedModel
from core_engine.lab.workloads import at_once, poisson, requests, uniform_lengths
from core_engine.request import Request
from gateway.bench.figures import percentile
from gateway.profiles import PROFILES
from tests.plugins.runs import Run, make_request

DEFAULTS = {"token_limit": 512, "sequence_limit": 64, "block_size": 32}
CHAT = {**DEFAULTS, **PROFILES["chat"].limits}
BASE_SECONDS = 0.010  # of an iteration without rows
SLOW, MIDDLING, FAST = 0.002, 0.0005, 0.0001  # seconds of a row


def wanted(num_requests: int) -> list[Request]:
    return list(islice(requests(uniform_lengths(0), seed=0, vocab_size=900), num_requests))


def run_of(row_seconds: float, *policies: str, **limits: int) -> Run:
    """An engine that has answered one request, so that it knows how long an iteration of decodes takes."""
    model = SimulatedModel(base_seconds=BASE_SECONDS, row_seconds=row_seconds, verify=False)
    run = Run(*policies, model=model, num_blocks=8000, check_integrity=False, **limits)
    return run.finish(make_request("warm-up", 64, 16))


def seconds_at_once(row_seconds: float, *policies: str, **limits: int) -> float:
    """Until 64 requests that come at one moment are answered."""
    run = run_of(row_seconds, *policies, **limits)
    began = run.clock.now()
    simulate(run.engine, run.clock, at_once(wanted(64), began))
    return run.clock.now() - began


def p99_over_median_gap(row_seconds: float, *policies: str, **limits: int) -> float:
    """Of the times between two tokens of a request, at 70 % of the rate that the defaults can answer."""
    run = run_of(row_seconds, *policies, **limits)
    rate = 0.7 * 64 / seconds_at_once(row_seconds, **DEFAULTS)
    simulate(run.engine, run.clock, poisson(wanted(80), rate, seed=0))
    last: dict[int, float] = {}
    gaps = []
    for record in run.records:
        end = record.started_seconds + record.duration_seconds
        gaps += [end - last[row.sequence_id] for row in record.rows if row.is_decode and row.sequence_id in last]
        last.update((row.sequence_id, end) for row in record.rows)
    return percentile(gaps, 99) / percentile(gaps, 50)


@pytest.mark.parametrize("row_seconds", [SLOW, MIDDLING, FAST])
def test_streams_have_no_long_gaps(row_seconds: float) -> None:
    assert p99_over_median_gap(row_seconds, *PROFILES["chat"].policies, **CHAT) <= 4


def test_blocks_of_the_usual_size_are_too_long_for_it_on_a_slow_machine() -> None:
    assert p99_over_median_gap(SLOW, *PROFILES["chat"].policies, **DEFAULTS) > 4


def test_the_defaults_have_long_gaps_on_a_slow_machine() -> None:
    assert p99_over_median_gap(SLOW, **DEFAULTS) > 20


@pytest.mark.parametrize("row_seconds", [SLOW, MIDDLING, FAST])
def test_it_costs_little_throughput(row_seconds: float) -> None:
    chat = seconds_at_once(row_seconds, *PROFILES["chat"].policies, **CHAT)
    assert chat <= 1.2 * seconds_at_once(row_seconds, **DEFAULTS)
