"""A gate by prompt length: the longer a prompt, the further those who run must have come."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.plan import PrefillLimit
from core_engine.view import EngineView

Band = tuple[Annotated[int, msgspec.Meta(ge=1)] | None, Annotated[int, msgspec.Meta(ge=0)]]


class LengthGateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bands`: [prompt tokens up to which it reaches (null: any), output tokens] each; `max_hold_iterations`: 1 up."""

    bands: tuple[Band, ...] = ((256, 0), (2048, 16), (None, 48))
    max_hold_iterations: Annotated[int, msgspec.Meta(ge=1)] = 64


class LengthGate:
    """Boards short prompts at any time, longer ones once running decodes have made progress.

    `bands` are [longest prompt, progress] in ascending order, both in tokens: a prompt boards once the running
    decodes have on average emitted the progress of its band, [[256,0],[2048,16],[null,48]] at first;
    prompts beyond the last band belong to it. Nobody is held later than `max_hold_iterations` (64) after
    arrival, nor again after a preemption. No opinion while no decode runs. Source: the practice of admitting by
    bands of prompt length. Guarantees the bound on holding, and that prompts of a band
    without progress are never held.
    """

    Options = LengthGateOptions
    hookspec_range = (1, 1)

    def __init__(self, options: LengthGateOptions, seed: int) -> None:
        reaches = [reach for reach, _ in options.bands]
        limits = [float("inf") if reach is None else reach for reach in reaches]
        if not limits or any(low >= high for low, high in pairwise(limits)):
            raise ValueError(f"bands reach {reaches}; they must be there, and ascend, null at the end only")
        self.max_hold_iterations = options.max_hold_iterations
        self._limits = limits[:-1]
        self._progress = [progress for _, progress in options.bands]
        self._reasons = [f"running decodes have emitted fewer than {p} tokens on average" for p in self._progress]

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """Names the waiting prompts that are too long for now."""
        emitted = [s.num_output_tokens for s in view.running if s.num_pending_tokens == 1]
        if not emitted:
            return None
        mean = sum(emitted) / len(emitted)
        reasons = [reason if mean < p else None for reason, p in zip(self._reasons, self._progress, strict=True)]
        if not any(reasons):
            return None
        first = next(band for band, reason in enumerate(reasons) if reason)
        short = self._limits[first - 1] if first else 0
        latest = view.iteration - self.max_hold_iterations
        held = {
            s.id: reason
            for queue in view.waiting.values()
            for s in queue.window()
            if s.num_prompt_tokens > short
            and s.arrival_iteration > latest
            and not s.num_preemptions
            and (reason := reasons[bisect_left(self._limits, s.num_prompt_tokens)])
        }
        return PrefillLimit(held=held) if held else None
