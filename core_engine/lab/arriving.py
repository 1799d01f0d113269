"""Requests that arrive over time at an engine of this process, in real time without its pauses, or in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from core_engine.clock import Clock, MonotonicClock
from core_engine.engine import Engine
from core_engine.errors import EngineUnavailable
from core_engine.lab.workloads import Arrival


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request; `computed_seconds` ends with its last token, `seconds` when it is handed out."""

    output_tokens: int
    seconds: float
    computed_seconds: float


class SkippingClock(MonotonicClock):
    """The machine's clock, but time in which nothing would happen is skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        """Seconds of the monotonic clock, and those skipped."""
        return super().now() + self._skipped

    def advance(self, seconds: float) -> None:
        """Skip that many seconds."""
        self._skipped += seconds


class AdvancingClock(Clock, Protocol):
    """A clock that can be moved on."""

    def advance(self, seconds: float) -> None:
        """Move on by that many seconds."""
        ...


def run_arriving(
    engine: Engine, clock: AdvancingClock, arrivals: Iterable[Arrival], alone: Sequence[Answered] = ()
) -> list[Answered]:
    """Submit each at its moment and step until the last is answered; answers are in order of arrival.

    While nothing is there to do, the clock skips to the next arrival. With `alone`, what each takes by itself,
    one that would end before the next arrives is not run again. Raises EngineUnavailable where the engine
    refuses or fails one.
    """
    wanted = list(arrivals)
    places = {arrival.request.id: place for place, arrival in enumerate(wanted)}
    answers: dict[int, Answered] = {}
    admitted: dict[int, float] = {}
    began, upcoming = clock.now(), 0
    while len(answers) < len(wanted):
        now = clock.now() - began
        if not engine.has_work and (wait := wanted[upcoming].seconds - now) > 0:
            clock.advance(wait)
            now = wanted[upcoming].seconds
        if not engine.has_work and alone and _stays_alone(wanted, upcoming, now, alone[upcoming].seconds):
            answers[upcoming] = alone[upcoming]
            upcoming += 1
            continue
        while upcoming < len(wanted) and wanted[upcoming].seconds <= now:
            engine.submit(wanted[upcoming].request)
            admitted[upcoming] = now - wanted[upcoming].seconds
            upcoming += 1
        output = engine.step()
        if output.rejected:
            raise EngineUnavailable(f"{output.rejected[0].request_id} was refused: {output.rejected[0].message}")
        now = clock.now() - began
        for outcome in output.finished:
            if outcome.finish_reason != "length":
                raise EngineUnavailable(f"{outcome.request_id} ended by {outcome.finish_reason}")
            place = places[outcome.request_id]
            answers[place] = Answered(
                output_tokens=outcome.num_output_tokens,
                seconds=now - wanted[place].seconds,
                computed_seconds=admitted[place] + outcome.total_seconds,
            )
    return [answers[place] for place in range(len(wanted))]


def _stays_alone(wanted: list[Arrival], place: int, now: float, seconds: float) -> bool:
    """Whether this one, which arrives at an idle engine, is done before the next comes."""
    is_punctual = now - wanted[place].seconds < 1e-3 * seconds
    return is_punctual and (place + 1 == len(wanted) or wanted[place + 1].seconds >= now + seconds)
