"""A gate on the share of prompts in the work of recent iterations."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core_engine.cost import CostModel, Load
from core_engine.hookspecs import hookimpl
from core_engine.plan import PrefillLimit
from core_engine.view import EngineView

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class PrefillShareOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of the work between 0 and 1; `window` in iterations, 1 to 4,096."""

    pause_share: Share = 0.35
    resume_share: Share = 0.30
    action: Literal["hold_new", "cap_tokens"] = "hold_new"
    measure: Literal["compute", "time"] = "compute"
    window: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16


class PrefillShare:
    """Lets no new request board while prompts are too large a share of the work.

    The share is that of prompts in the work of the last iterations, a moving mean over about `window`
    (16) of them. Above `pause_share` (0.35) boarding pauses, at `resume_share` (0.30) or below it goes on.
    `action=hold_new` leaves prompts that have boarded alone; `cap_tokens` also shrinks their chunks, so that
    each iteration keeps the pause share too, down to one block. `measure=compute` counts exact
    computation, `time` what the cost model predicts. No opinion while no decode runs. Source: the
    rule of thumb to reserve 60 to 70 % of an iteration for those who ride. Guarantees that
    nobody starts while it pauses, for as long as a decode runs; a low share costs throughput where
    prompts are most of the work.
    """

    Options = PrefillShareOptions
    hookspec_range = (1, 1)

    def __init__(self, options: PrefillShareOptions, seed: int) -> None:
        if options.resume_share > options.pause_share:
            raise ValueError(
                f"resume_share {options.resume_share} is above pause_share {options.pause_share}; give a lower one"
            )
        self.options = options
        self.paused = False
        self._prompt_work = 0.0  # moving means
        self._all_work = 0.0

    @property
    def share(self) -> float:
        """Of prompts in the work of the last iterations, 0 to 1."""
        return self._prompt_work / self._all_work if self._all_work else 0.0

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """No start while paused, and with `cap_tokens` no chunk beyond the share of this iteration."""
        self._take_in(view)
        threshold = self.options.resume_share if self.paused else self.options.pause_share
        self.paused = self.share > threshold
        if not self.paused:
            return None
        decodes = view.decode_load
        if not decodes.rows:
            return None
        reason = "prompts are too large a share of the work"
        if self.options.action == "hold_new":
            return PrefillLimit(new_sequences=0, reason=reason)
        allowed = self.options.pause_share / (1 - self.options.pause_share)
        cost, block = view.cost_model, view.block_size
        if self.options.measure == "time":
            least = cost.prefill_seconds(decodes.plus(0, block), decodes)
            seconds = max(least, allowed * cost.estimate(decodes))
            return PrefillLimit(new_sequences=0, seconds=seconds, reason=reason)
        tokens = int(allowed * cost.flops(decodes) / cost.flops(Load(rows=1)))
        return PrefillLimit(new_sequences=0, prompt_tokens=max(block, tokens), reason=reason)

    def _take_in(self, view: EngineView) -> None:
        """Take the last iteration's work into the moving means."""
        prompts, all_work = self._work(view.cost_model, view.last_load, view.last_decode_load)
        self._prompt_work += (prompts - self._prompt_work) / self.options.window
        self._all_work += (all_work - self._all_work) / self.options.window

    def _work(self, cost: CostModel, everything: Load, decodes: Load) -> tuple[float, float]:
        if self.options.measure == "time":
            return cost.prefill_seconds(everything, decodes), cost.estimate(everything)
        return cost.flops(everything) - cost.flops(decodes), cost.flops(everything)
