"""Least predicted remaining work first, with an end to being overtaken."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_engine.cost import Load
from core_engine.hookspecs import hookimpl
from core_engine.view import EngineView, SequenceView, waiting_by_arrival


class ShortestFirstOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ageing_iterations`: waiting time after which nobody younger goes first, 1 up."""

    ageing_iterations: Annotated[int, msgspec.Meta(ge=1)] = 512


class ShortestFirst:
    """Ranks by the least predicted remaining work, which makes the mean wait short.

    Remaining work is the predicted time of the rest of the prompt and of the output tokens still expected
    (`predict_output_tokens`), alone. Who runs goes on. A request that has waited for `ageing_iterations` (512) since
    its arrival goes before all that came later. Source: shortest remaining processing time, without
    preemption, on predicted lengths (S3, SSJF). Guarantees that nobody is overtaken any more once it has
    aged, where no gate holds it: it waits for its elders only.
    """

    Options = ShortestFirstOptions
    hookspec_range = (1, 1)

    def __init__(self, options: ShortestFirstOptions, seed: int) -> None:
        self.promised_wait_iterations = options.ageing_iterations

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        """Who runs, who has aged by arrival, then the others, the shortest first."""
        cost, chunk = view.cost_model, view.token_limit
        prompt_token = cost.estimate(Load.of([(0, chunk)])) / chunk or 1.0
        output_token = cost.estimate(Load(rows=1)) or 1.0

        def remaining(sequence: SequenceView) -> float:
            prompt = sequence.num_tokens - sequence.num_computed_tokens
            output = max(1, sequence.predicted_output_tokens - sequence.num_output_tokens)
            return prompt * prompt_token + output * output_token

        latest = view.iteration - self.promised_wait_iterations
        waiting = list(waiting_by_arrival(view))
        aged = [s.id for s in waiting if s.arrival_iteration <= latest]
        others = sorted((s for s in waiting if s.arrival_iteration > latest), key=remaining)
        return [*(s.id for s in sorted(view.running, key=remaining)), *aged, *(s.id for s in others)], set()
