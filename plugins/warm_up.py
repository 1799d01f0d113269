"""A gate on the first iterations after the engine's start."""

from __future__ import annotations

from collections import deque
from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.plan import PrefillLimit
from core_engine.view import EngineView

_STEADY_ITERATIONS = 32
_STEADY_RANGE = 0.05  # the error of the cost model moved less than that in so many iterations


class WarmUpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`iterations`: length of the ramp, 1 up; `initial_starts`: sequences per iteration, 1 up."""

    iterations: Annotated[int, msgspec.Meta(ge=1)] = 300
    initial_starts: Annotated[int, msgspec.Meta(ge=1)] = 1


class WarmUp:
    """Starts at a low boarding rate and ramps up over the first iterations of an engine.

    In iteration i after the engine's start, counted from 0, at most `initial_starts` (1) sequences start, plus a
    share i / `iterations` (300) of what is missing to the sequence limit. It ends early when the cost model can be
    trusted and its error has been steady for 32 iterations. Source: the practice of a low admission
    rate for the first few hundred iterations, until the allocator is steady. Guarantees that no
    iteration of the ramp starts more, except for what the engine lets board by its own rules.
    """

    Options = WarmUpOptions
    hookspec_range = (1, 1)

    def __init__(self, options: WarmUpOptions, seed: int) -> None:
        self.options = options
        self._errors: deque[float] = deque(maxlen=_STEADY_ITERATIONS)
        self._over = False

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """The starts that the ramp allows by now; no opinion once it is over."""
        done = view.iteration - 1
        self._over = self._over or done >= self.options.iterations or self._is_steady(view)
        if self._over:
            return None
        first = self.options.initial_starts
        more = max(0, view.sequence_limit - first) * done // self.options.iterations
        return PrefillLimit(new_sequences=first + more, reason="the engine warms up")

    def _is_steady(self, view: EngineView) -> bool:
        errors = self._errors
        errors.append(view.cost_model.error)
        full = len(errors) == _STEADY_ITERATIONS
        return full and view.cost_model.trusted and max(errors) - min(errors) < _STEADY_RANGE
