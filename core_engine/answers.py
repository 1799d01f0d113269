"""The engine's checks of what policies answer: each returns the answer, repaired, or raises BadAnswer."""

from __future__ import annotations

import math
from typing import Any

from core_engine.panel import BadAnswer
from core_engine.plan import Admit, IterationPlan, PrefillLimit, Reject


def integer(answer: Any) -> int:
    """An int, and no bool."""
    if type(answer) is not int:
        raise BadAnswer(f"answered {answer!r:.60}, not an int")
    return answer


def clamped(low: int, high: int) -> Any:
    """A check for an int, clamped to `low .. high`."""

    def check(answer: Any) -> int:
        return max(low, min(high, integer(answer)))

    return check


def admission(answer: Any) -> Admit | Reject:
    """Admit or Reject, with headers of text and a positive retry time."""
    if not isinstance(answer, Admit | Reject):
        raise BadAnswer(f"answered {answer!r:.60}, not Admit or Reject")
    if type(answer.limits) is not dict or not all(type(x) is str for pair in answer.limits.items() for x in pair):
        raise BadAnswer(f"limits {answer.limits!r:.60} are not a dict of str to str")
    if isinstance(answer, Reject):
        if type(answer.reason) is not str or type(answer.message) is not str or not answer.reason:
            raise BadAnswer("a rejection needs a reason, and a message that is text")
        if not _finite(answer.retry_after_seconds) or answer.retry_after_seconds <= 0:
            raise BadAnswer(f"retry_after_seconds is {answer.retry_after_seconds!r:.40}, not a positive number")
    return answer


def prefill_limit(answer: Any) -> PrefillLimit:
    """A PrefillLimit whose numbers are not negative."""
    if not isinstance(answer, PrefillLimit):
        raise BadAnswer(f"answered {answer!r:.60}, not a PrefillLimit")
    for field in ("prompt_tokens", "new_sequences", "keep_free_blocks"):
        value = getattr(answer, field)
        if value is not None and (type(value) is not int or value < 0):
            raise BadAnswer(f"{field} is {value!r:.40}, not an int of at least 0")
    if answer.seconds is not None and (not _finite(answer.seconds) or answer.seconds < 0):
        raise BadAnswer(f"seconds is {answer.seconds!r:.40}, not a number of at least 0")
    if type(answer.held) is not dict or not all(type(k) is int and type(v) is str for k, v in answer.held.items()):
        raise BadAnswer("held is not a dict of sequence id to reason")
    if type(answer.reason) is not str:
        raise BadAnswer("reason is not text")
    return answer


def ranking(answer: Any) -> tuple[list[int], set[int]]:
    """A pair of ids in order and a set of ids."""
    try:
        ids, must_run = answer
        ids, must_run = list(ids), set(must_run)
    except (TypeError, ValueError):
        raise BadAnswer(f"answered {answer!r:.60}, not (ids, must_run)") from None
    if not all(type(i) is int for i in ids) or not all(type(i) is int for i in must_run):
        raise BadAnswer("ids must be ints")
    return ids, must_run


def victims(answer: Any) -> list[int]:
    """A list of ids."""
    try:
        ids = list(answer)
    except TypeError:
        raise BadAnswer(f"answered {answer!r:.60}, not ids") from None
    if not all(type(i) is int for i in ids):
        raise BadAnswer("ids must be ints")
    return ids


def plan_shape(answer: Any) -> IterationPlan:
    """An IterationPlan of positive numbers of tokens by id; whether it is legal is for the Budget to say."""
    if not isinstance(answer, IterationPlan):
        raise BadAnswer(f"answered {answer!r:.60}, not an IterationPlan")
    if type(answer.num_tokens) is not dict or type(answer.deliver) is not bool:
        raise BadAnswer("num_tokens must be a dict and deliver a bool")
    if type(answer.idle_rows) is not int or answer.idle_rows < 0:
        raise BadAnswer(f"idle_rows is {answer.idle_rows!r:.40}, not an int of at least 0")
    return answer


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
