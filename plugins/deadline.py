"""Earliest deadline first, on the objectives of the classes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_engine.cost import Load
from core_engine.hookspecs import hookimpl
from core_engine.view import EngineView, SequenceView, waiting_by_arrival

_HOPEFUL, _WITHOUT, _HOPELESS = range(3)


class DeadlineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ageing_iterations`: waiting time after which nobody younger goes first, 1 up."""

    ageing_iterations: Annotated[int, msgspec.Meta(ge=1)] = 512


class Deadline:
    """Ranks by the earliest deadline that can still be met.

    The deadline of a first token is arrival plus the time to first token that is the objective of the
    class; that of a later token follows from the time per output token. A request whose first token is late, or
    predicted to be, is hopeless: it goes last, after those of classes without objectives, so that it
    costs nobody else's. Who runs goes on. A request that has waited for `ageing_iterations` (512) since its arrival
    goes before all that came later. Source: EDF (Liu and Layland, 1973), with shedding of the hopeless. Guarantees
    that nobody is overtaken any more once it has aged, where no gate holds it: it waits for its elders only.
    """

    Options = DeadlineOptions
    hookspec_range = (1, 1)

    def __init__(self, options: DeadlineOptions, seed: int) -> None:
        self.promised_wait_iterations = options.ageing_iterations

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        """Who runs, who has aged by arrival, then the others; each of the first and last by deadline."""
        now, targets, chunk, cost = view.now, view.class_targets, view.token_limit, view.cost_model
        # Until predictions can be trusted, nobody is given up before it is late.
        prompt_token = cost.seconds(Load.of([(0, chunk)])) / chunk if cost.trusted else 0.0

        def urgency(sequence: SequenceView) -> tuple[int, float]:
            target = targets.get(sequence.class_name)
            if target is None:
                return _WITHOUT, 0.0
            to_first, per_token = target.time_to_first_token_seconds, target.time_per_output_token_seconds
            first = sequence.first_token_seconds
            if to_first is not None:
                due = sequence.arrival_seconds + to_first
                expected = now + sequence.num_pending_tokens * prompt_token if first is None else first
                if expected > due:
                    return _HOPELESS, 0.0
                if first is None:
                    return _HOPEFUL, due
            if first is not None and per_token is not None:
                return _HOPEFUL, first + sequence.num_output_tokens * per_token
            return _WITHOUT, 0.0

        latest = view.iteration - self.promised_wait_iterations
        waiting = list(waiting_by_arrival(view))
        aged = [s.id for s in waiting if s.arrival_iteration <= latest]
        others = sorted((s for s in waiting if s.arrival_iteration > latest), key=urgency)
        return [*(s.id for s in sorted(view.running, key=urgency)), *aged, *(s.id for s in others)], set()
