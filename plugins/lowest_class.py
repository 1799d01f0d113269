"""Victims from the least urgent class."""

from __future__ import annotations

from core_engine.hookspecs import NoOptions, hookimpl
from core_engine.plan import Shortage
from core_engine.view import EngineView


class LowestClass:
    """Preempts the least urgent for memory: the largest priority number first, of equals the last arrival.

    No opinion on shortages of rank, which `priority` answers. Source: preemption of the lowest-priority,
    latest request (vLLM). No options. Guarantees that nobody is preempted for memory while somebody less
    urgent runs who may be a victim.
    """

    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def choose_victims(self, shortage: Shortage, view: EngineView) -> list[int] | None:
        """Running ids, least urgent first."""
        if shortage.kind != "memory":
            return None
        return [s.id for s in sorted(view.running, key=lambda s: (-s.priority, -s.id))]
