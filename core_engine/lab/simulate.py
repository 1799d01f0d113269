"""Drive an engine over a workload in virtual time and collect everything it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from core_engine.clock import VirtualClock
from core_engine.engine import Engine
from core_engine.errors import IntegrityError
from core_engine.hookspecs import hookimpl
from core_engine.lab.workloads import Arrival
from core_engine.messages import IterationOutput, Outcome, Rejected, SequenceOutput
from core_engine.plan import IterationRecord


class Recorder:
    """A policy without opinions that keeps the record of every iteration, a line of JSON each."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    @hookimpl
    def on_iteration_end(self, record: IterationRecord) -> None:
        """Keep it."""
        self.lines.append(msgspec.json.encode(record) + b"\n")

    def records(self) -> list[IterationRecord]:
        """All records, decoded."""
        return [msgspec.json.decode(line, type=IterationRecord) for line in self.lines]


@dataclass(slots=True)
class Simulation:
    """What came of a workload.

    `token_ids` by (request id, sample index); `first_tokens` and `ended` are the iterations at whose end
    a sequence's first output and a request's outcome were delivered.
    """

    token_ids: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    finish_reasons: dict[tuple[str, int], str] = field(default_factory=dict)
    errors: dict[tuple[str, int], str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    rejected: dict[str, Rejected] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)  # request id -> iteration
    first_tokens: dict[tuple[str, int], int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    iterations: int = 0

    def add(self, output: IterationOutput) -> None:
        """Take in one iteration; raises IntegrityError where it contradicts what was told before."""
        self.iterations += 1
        for accepted in output.accepted:
            self.accepted[accepted.request_id] = self.iterations
        for rejected in output.rejected:
            self.rejected[rejected.request_id] = rejected
        for piece in output.outputs:
            self._add_piece(piece)
        for outcome in output.finished:
            if outcome.request_id in self.outcomes:
                raise IntegrityError(f"request {outcome.request_id} ended twice")
            self.outcomes[outcome.request_id] = outcome
            self.ended[outcome.request_id] = self.iterations

    def _add_piece(self, piece: SequenceOutput) -> None:
        key = (piece.request_id, piece.sample_index)
        if key in self.finish_reasons or piece.request_id in self.outcomes:
            raise IntegrityError(f"sequence {key} has output after its end")
        if piece.token_ids:
            self.first_tokens.setdefault(key, self.iterations)
        self.token_ids.setdefault(key, []).extend(piece.token_ids)
        if piece.finish_reason is not None:
            self.finish_reasons[key] = piece.finish_reason
        if piece.error is not None:
            self.errors[key] = piece.error


def simulate(
    engine: Engine,
    clock: VirtualClock,
    arrivals: Iterable[Arrival],
    *,
    max_iterations: int | None = None,
    before_step: Callable[[int], None] = lambda iteration: None,
) -> Simulation:
    """Run until every arrival is done, or for `max_iterations`, which endless arrivals need.

    While the engine has nothing to do, time jumps to the next arrival. `before_step(iteration)` may
    cancel or submit by itself; iterations count from 1.
    """
    simulation = Simulation()
    source = iter(arrivals)
    upcoming = next(source, None)
    while upcoming is not None or engine.has_work:
        if max_iterations is not None and simulation.iterations >= max_iterations:
            break
        if upcoming is not None and not engine.has_work:
            clock.advance(max(0.0, upcoming.seconds - clock.now()))
        while upcoming is not None and upcoming.seconds <= clock.now():
            engine.submit(upcoming.request)
            upcoming = next(source, None)
        before_step(simulation.iterations + 1)
        simulation.add(engine.step())
    return simulation
