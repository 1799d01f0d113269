"""Objectives: what each class of requests was promised, and how often it got it."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from core_engine.messages import Outcome  # which needs the configuration, which needs Objective

_RECENT = 256  # finished requests of a class that an attainment looks back on
_ENOUGH = 30  # below that many on either side nothing is said
_CLEARLY = 3.0  # standard deviations that make a difference clear

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets of one class: `percentile` percent of its requests shall meet those that are set."""

    time_to_first_token_seconds: Seconds | None = None
    time_per_output_token_seconds: Seconds | None = None
    percentile: Annotated[float, msgspec.Meta(gt=0, le=100)] = 99.0

    def is_met(self, outcome: Outcome) -> bool:
        """Whether a request that ended like this got what was promised; one without a token did not."""
        if outcome.queue_seconds is None or outcome.prefill_seconds is None or outcome.decode_seconds is None:
            return False
        first = outcome.queue_seconds + outcome.prefill_seconds
        per_token = outcome.decode_seconds / max(1, outcome.num_output_tokens - 1)
        in_time = self.time_to_first_token_seconds is None or first <= self.time_to_first_token_seconds
        return in_time and (
            self.time_per_output_token_seconds is None or per_token <= self.time_per_output_token_seconds
        )


class Attainment:
    """Counts by class how many finished requests met their objective.

    `counts` holds (met, all) since the last drain; `recent` the last verdicts of all classes together,
    which a probation compares with those before.
    """

    def __init__(self, objectives: dict[str, Objective]) -> None:
        self._objectives = objectives
        self.counts: dict[str, tuple[int, int]] = {}
        self.recent: deque[bool] = deque(maxlen=_RECENT)

    def record(self, class_name: str, outcome: Outcome) -> None:
        """Take in a request that ended by itself; classes without an objective are not counted."""
        objective = self._objectives.get(class_name)
        if objective is None or outcome.finish_reason not in ("stop", "length"):
            return
        met = objective.is_met(outcome)
        good, total = self.counts.get(class_name, (0, 0))
        self.counts[class_name] = (good + met, total + 1)
        self.recent.append(met)

    def start_over(self) -> list[bool]:
        """Forget the recent verdicts and return them."""
        recent = list(self.recent)
        self.recent.clear()
        return recent

    def recall(self, verdicts: list[bool]) -> None:
        """Put these in place of the recent verdicts."""
        self.recent = deque(verdicts, maxlen=_RECENT)

    def drain_counts(self) -> dict[str, tuple[int, int]]:
        """(met, all) by class since the last call."""
        drained, self.counts = self.counts, {}
        return drained


def clearly_worse(before: list[bool], after: list[bool]) -> bool:
    """Whether a smaller share is true `after` than `before`, beyond chance (a two-proportion z-test)."""
    if len(before) < _ENOUGH or len(after) < _ENOUGH:
        return False
    share_before, share_after = sum(before) / len(before), sum(after) / len(after)
    pooled = (sum(before) + sum(after)) / (len(before) + len(after))
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / len(before) + 1 / len(after)))
    return share_before - share_after > _CLEARLY * deviation > 0
