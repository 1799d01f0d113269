"""A gate on what prompts add to the time of an iteration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.plan import PrefillLimit
from core_engine.view import EngineView


class StretchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`max_stretch`: times the decodes' own time, 1 to 1,000; `max_seconds`: of a whole iteration, more than 0."""

    max_stretch: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 4.0
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Stretch:
    """Bounds what newcomers cost those who run: how much prompts may prolong an iteration.

    The predicted time of an iteration is at most `max_stretch` (4) times that of its decodes alone and, where
    given, at most `max_seconds`; prompt chunks shrink to that, though never below one block of tokens. No opinion
    while no decode runs. Source: estimate what a newcomer adds and match it to what is spare;
    Sarathi-Serve (OSDI '24) bounds the chunk by tokens instead. Guarantees the bound on the predicted time
    with ranks by arrival, where nothing must run: the larger of it and of the decodes with one block of
    the longest computed prompt. While the cost model can't be trusted, shares of the exact computation stand
    in for time.
    """

    Options = StretchOptions
    hookspec_range = (1, 1)

    def __init__(self, options: StretchOptions, seed: int) -> None:
        self.options = options

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """Seconds that the prompts of this iteration may add."""
        decodes = view.decode_load
        if not decodes.rows:
            return None
        cost = view.cost_model
        alone = cost.estimate(decodes)
        allowed = self.options.max_stretch * alone
        if self.options.max_seconds is not None:
            allowed = min(allowed, self.options.max_seconds)
        deepest = 0
        if len(view.running) > decodes.rows:
            deepest = max((s.num_computed_tokens for s in view.running if s.num_pending_tokens > 1), default=0)
        least = cost.prefill_seconds(decodes.plus(deepest, view.block_size), decodes)
        return PrefillLimit(seconds=max(allowed - alone, least), reason="prompts would prolong the iteration too much")
