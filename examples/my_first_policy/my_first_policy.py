"""A whole policy: short prompts first, but nobody is passed over for ever."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.view import EngineView, waiting_by_arrival


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `--policy short_prompts:max_prompt_tokens=100` sets; a wrong value is refused at start."""

    max_prompt_tokens: Annotated[int, msgspec.Meta(ge=1)] = 256
    max_wait_iterations: Annotated[int, msgspec.Meta(ge=1)] = 200


class ShortPrompts:
    """Ranks prompts of up to `max_prompt_tokens` (256) first, and before them who has waited too long.

    Guarantees that whoever has waited `max_wait_iterations` (200) is next.
    """

    Options = Options
    hookspec_range = (1, 1)

    def __init__(self, options: Options, seed: int) -> None:
        self.options = options
        self.promised_wait_iterations = options.max_wait_iterations

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        """Who runs goes on; who has waited too long, then short prompts; the rest follows by arrival."""
        waiting = list(waiting_by_arrival(view))
        latest = view.iteration - self.options.max_wait_iterations
        overdue = [s.id for s in waiting if s.arrival_iteration <= latest]
        short = [s.id for s in waiting if s.num_prompt_tokens <= self.options.max_prompt_tokens]
        return [*(s.id for s in view.running), *overdue, *short], set()
