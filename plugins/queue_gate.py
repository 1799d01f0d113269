"""A gate on how many run and how many are in their prompts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.plan import PrefillLimit
from core_engine.view import EngineView

Count = Annotated[int, msgspec.Meta(ge=1)]


class QueueGateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`max_running`: sequences, 1 up, without one the engine's limit; `max_prefilling`: sequences, 1 up."""

    max_running: Count | None = None
    max_prefilling: Count = 4


class QueueGate:
    """Protects accepted work: newcomers board only while few run and few are in their prompts.

    At most `max_running` sequences run (default: the sequence limit) and at most `max_prefilling` (4) of them have
    more than one token to catch up with; a newcomer counts as both. Source: the rule to let no new
    prompt board while the number of requests already accepted is over a threshold. Guarantees both
    bounds after every iteration, except for what the engine lets board by its own rules: the first when
    nothing runs, overdue requests, and what must run.
    """

    Options = QueueGateOptions
    hookspec_range = (1, 1)

    def __init__(self, options: QueueGateOptions, seed: int) -> None:
        self.options = options

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit:
        """As many starts as both bounds leave."""
        max_running = self.options.max_running or view.sequence_limit
        running = max_running - len(view.running)
        prefilling = self.options.max_prefilling - (len(view.running) - len(view.decodes))
        return PrefillLimit(
            new_sequences=max(0, min(running, prefilling)),
            reason="enough sequences run" if running <= prefilling else "enough sequences are in their prompts",
        )
