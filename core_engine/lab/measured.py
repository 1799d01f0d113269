"""Requests that are all there at once, run to their end by an engine of this process, against the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from core_engine.clock import Clock, MonotonicClock
from core_engine.engine import Engine
from core_engine.errors import EngineUnavailable
from core_engine.messages import IterationStats, Outcome
from core_engine.request import Request


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took. `stats` are those of its iterations, in order; `outcomes` come as requests ended."""

    wall_seconds: float
    prompt_tokens: int
    output_tokens: int
    stats: list[IterationStats]
    outcomes: list[Outcome]

    @property
    def executing_seconds(self) -> float:
        """Time inside the executor."""
        return sum(stats.duration_seconds for stats in self.stats)

    @property
    def gaps_seconds(self) -> list[float]:
        """From one execution to the next."""
        return [stats.idle_gap_seconds for stats in self.stats if stats.idle_gap_seconds is not None]


def run_at_once(
    engine: Engine,
    wanted: Sequence[Request],
    *,
    clock: Clock | None = None,
    progress: Callable[[int], None] = lambda num_finished: None,
) -> MeasuredRun:
    """Submit all and step until the last has ended; `progress` hears how many ended in an iteration.

    Raises EngineUnavailable where the engine refuses or fails one of them.
    """
    clock = clock or MonotonicClock()
    stats: list[IterationStats] = []
    outcomes: list[Outcome] = []
    began = clock.now()
    for request in wanted:
        engine.submit(request)
    while engine.has_work:
        output = engine.step()
        if output.rejected:
            raise EngineUnavailable(f"{output.rejected[0].request_id} was refused: {output.rejected[0].message}")
        if output.stats is not None:
            stats.append(output.stats)
        if output.finished:
            outcomes += output.finished
            progress(len(output.finished))
    seconds = clock.now() - began
    failed = [outcome.request_id for outcome in outcomes if outcome.finish_reason not in ("stop", "length")]
    if failed:
        raise EngineUnavailable(f"{failed[0]} failed")
    return MeasuredRun(
        wall_seconds=seconds,
        prompt_tokens=sum(outcome.num_prompt_tokens for outcome in outcomes),
        output_tokens=sum(outcome.num_output_tokens for outcome in outcomes),
        stats=stats,
        outcomes=outcomes,
    )
