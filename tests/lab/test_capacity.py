"""The search for the highest rate within a bound, on systems whose latency is known."""

from __future__ import annotations

import math

import pytest

from core_engine.lab.arriving import Answered
from core_engine.lab.capacity import Curve, Objective, search, spread, spread_further
from gateway.bench.capacity import terms

SERVICE_RATE = 4.0


def answers(rate: float) -> list[Answered]:
    """Latency of a queue: 1 s a token unloaded, without bound towards 4 requests/s, where all end at once."""
    slowed = 1 / (1 - rate / SERVICE_RATE) if rate < SERVICE_RATE else 1000.0
    if math.isinf(rate):
        return [Answered(output_tokens=1, seconds=8 / SERVICE_RATE, computed_seconds=1.0)] * 8
    return [
        Answered(output_tokens=tokens, seconds=tokens * slowed * share, computed_seconds=tokens * share)
        for tokens, share in [(1, 3.0), (8, 1.0), (8, 1.0)]
    ]


@pytest.mark.parametrize("factor", [1.25, 2.0, 3.0])
def test_finds_where_the_bound_is_reached(factor: float) -> None:
    curve, bound = Curve(answers, answers(0)), Objective(50, factor)
    search({"queue": curve}, [bound], tolerance=1.05)
    low, high = curve.bracket(bound)
    exact = SERVICE_RATE * (1 - 1 / factor)
    assert low <= exact <= high <= 1.05 * low
    assert curve.capacity(bound) == pytest.approx(exact, rel=0.02)


def test_the_ratio_is_split_into_what_static_batching_loses() -> None:
    def held(rate: float) -> list[Answered]:
        """Half as fast when all are there, and every answer is held back as long again as it took."""
        return [
            Answered(output_tokens=a.output_tokens, seconds=2 * a.seconds, computed_seconds=a.seconds)
            for a in answers(min(2 * rate, math.nextafter(SERVICE_RATE, 0)) if rate < math.inf else rate)
        ]

    bound = Objective(50, 4.0)
    free, static = Curve(answers, answers(0)), Curve(held, answers(0))
    early = Objective(50, 4.0, as_computed=True)
    search({"free": free, "static": static}, [bound, early], tolerance=1.01)
    split = terms(bound, free, static)
    # 1 / (1 - rate / 4) reaches 4 at 3 requests/s; twice it, at twice the rate, reaches 4 at 1, and once it at 1.5.
    assert split["utilisation"] == pytest.approx(2.0)
    assert split["synchronisation"] == pytest.approx(1.5, rel=0.02)
    assert split["waiting"] == pytest.approx(3 / 1.5 / 2, rel=0.02)


def test_no_more_than_saturation_is_sustained() -> None:
    curve, bound = Curve(answers, answers(0)), Objective(50, 1e6)
    search({"queue": curve}, [bound], tolerance=1.05)
    assert curve.saturated_rate == SERVICE_RATE
    assert curve.capacity(bound) == pytest.approx(SERVICE_RATE, rel=0.05)


@pytest.mark.parametrize("num_rates", [2, 5])
def test_rates_are_spread_over_all_capacities(num_rates: int) -> None:
    bounds = [Objective(50, factor) for factor in (1.25, 2.0, 1e6)]
    known, asked = Curve(answers, answers(0)), Curve(answers, answers(0))
    search({"queue": known}, bounds, tolerance=1.1)
    parts = spread(known, bounds, num_rates)
    assert len(parts) == num_rates
    assert parts == sorted(parts, reverse=True)
    for part in parts:
        asked.measure(part * asked.saturated_rate)
    for bound in bounds:
        low, high = asked.bracket(bound)
        assert 0 < low <= SERVICE_RATE * (1 - 1 / bound.factor) <= high


def test_rates_go_down_until_every_bound_is_met() -> None:
    bounds, curve = [Objective(50, 1.25), Objective(50, 2.0)], Curve(answers, answers(0))
    curve.measure(3.0)
    while (part := spread_further(curve, bounds)) is not None:
        curve.measure(part * curve.saturated_rate)
    lowest = min(filter(None, curve.points))
    assert lowest <= SERVICE_RATE * (1 - 1 / 1.25) < lowest * 1.5
    assert all(curve.capacity(bound) for bound in bounds)


def test_short_answers_can_be_left_out_and_holding_undone() -> None:
    at_half = answers(SERVICE_RATE / 2)
    assert Objective(100, 2.0).latency(at_half) == 6.0
    assert Objective(100, 2.0, min_output_tokens=8).latency(at_half) == 2.0
    assert Objective(100, 2.0, min_output_tokens=8, as_computed=True).latency(at_half) == 1.0
    with pytest.raises(ValueError, match="no answer has 9 output tokens"):
        Objective(100, 2.0, min_output_tokens=9).latency(at_half)
