"""The highest rate of arrivals at which latency stays within an objective, found by bisection or between few rates.

Latency is normalised: from arrival to the end of the answer, divided by its output tokens (Orca, OSDI '22).
An objective allows a percentile of it a multiple of what the same percentile is when nobody else is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from core_engine.lab.arriving import Answered

_MARGIN = 1.15  # by which rates are spread beyond the capacities that are expected
_HIGHEST_PART = 0.95  # near saturation a run of finite length tells nothing more
_FURTHER = 1.4


class Objective(msgspec.Struct, frozen=True):
    """The `percent`th percentile of the normalised latency within `factor` times the unloaded one.

    Only answers of `min_output_tokens` and more count. With `as_computed` an answer's time ends with its last
    token, even where it is held back afterwards.
    """

    percent: float
    factor: float
    min_output_tokens: int = 1
    as_computed: bool = False

    def latency(self, answers: Iterable[Answered]) -> float:
        """Seconds per output token: that percentile of these answers; raises ValueError where none counts."""
        values = [
            (answer.computed_seconds if self.as_computed else answer.seconds) / answer.output_tokens
            for answer in answers
            if answer.output_tokens >= self.min_output_tokens
        ]
        if not values:
            raise ValueError(f"no answer has {self.min_output_tokens} output tokens")
        return float(np.percentile(values, self.percent))


class Curve:
    """Answers of one system by rate, in requests per second; `run(rate)` measures."""

    def __init__(self, run: Callable[[float], list[Answered]], alone: list[Answered]) -> None:
        """`alone`: the answers when each request has the system to itself. Measures the rate at saturation."""
        self._run = run
        self._answers = {0.0: alone}
        self._latencies: dict[tuple[Objective, float], float] = {}
        at_once = run(math.inf)
        self.saturated_rate = len(at_once) / max(answer.seconds for answer in at_once)

    @property
    def points(self) -> Mapping[float, list[Answered]]:
        """What was measured, by rate; 0 is unloaded."""
        return self._answers

    def latency(self, objective: Objective, rate: float) -> float:
        """The objective's percentile at a rate that was measured."""
        key = objective, rate
        if key not in self._latencies:
            self._latencies[key] = objective.latency(self._answers[rate])
        return self._latencies[key]

    def limit(self, objective: Objective) -> float:
        """The latency that the objective allows."""
        return objective.factor * self.latency(objective, 0.0)

    def bracket(self, objective: Objective) -> tuple[float, float]:
        """The highest rate up to which every measured one met the objective, and the lowest that did not.

        No rate above that of saturation can be sustained, whatever a run of finite length says.
        """
        limit, low = self.limit(objective), 0.0
        for rate in sorted(self._answers):
            if self.latency(objective, rate) > limit:
                return low, rate
            low = rate
        return low, max(low, self.saturated_rate)

    def width(self, objective: Objective) -> float:
        """The bracket's ratio, as a logarithm."""
        low, high = self.bracket(objective)
        return math.log(high / low) if low else math.inf

    def capacity(self, objective: Objective) -> float | None:
        """The rate at which the limit is reached, between the bounds as a power law of the rate.

        None as long as no measured rate met the objective.
        """
        low, high = self.bracket(objective)
        if not low:
            return None
        if high not in self._answers:
            return math.sqrt(low * high)
        limit = self.limit(objective)
        below, above = self.latency(objective, low), self.latency(objective, high)
        return low * math.exp(math.log(high / low) * math.log(limit / below) / math.log(above / below))

    def measure(self, rate: float) -> None:
        """Run at that rate too."""
        if rate not in self._answers:
            self._answers[rate] = self._run(rate)

    def refine(self, objective: Objective) -> None:
        """Measure in the middle of the bracket."""
        low, high = self.bracket(objective)
        self.measure(math.sqrt(low * high) if low else high / 2)


def search(curves: Mapping[str, Curve], objectives: Sequence[Objective], *, tolerance: float) -> None:
    """Refine the widest bracket of all until every one is within a ratio of `tolerance`."""
    while True:
        widths = {(name, o): curves[name].width(o) for name in curves for o in objectives}
        name, objective = max(widths, key=widths.__getitem__)
        if widths[name, objective] <= math.log(tolerance):
            return
        curves[name].refine(objective)


def spread(curve: Curve, objectives: Sequence[Objective], num_rates: int) -> list[float]:
    """So many rates between which all capacities of this curve lie, each in a ratio to the next, the highest first.

    As parts of the rate at saturation. Every objective needs a capacity.
    """
    capacities = [capacity for objective in objectives if (capacity := curve.capacity(objective)) is not None]
    highest = min(_HIGHEST_PART, _MARGIN * max(capacities) / curve.saturated_rate)
    lowest = min(capacities) / curve.saturated_rate / _MARGIN
    return [float(part) for part in np.geomspace(highest, lowest, num_rates)]


def spread_further(curve: Curve, objectives: Sequence[Objective]) -> float | None:
    """A rate below all that were measured, as a part of that at saturation, while some objective is met at none."""
    if all(curve.bracket(objective)[0] for objective in objectives):
        return None
    return min(rate for rate in curve.points if rate) / _FURTHER / curve.saturated_rate
