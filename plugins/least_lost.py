"""Victims whose recomputation is cheapest."""

from __future__ import annotations

from core_engine.hookspecs import NoOptions, hookimpl
from core_engine.plan import Shortage
from core_engine.view import EngineView


class LeastLost:
    """Preempts whoever loses the least work: fewest computed tokens, less those in blocks that others hold.

    What others hold too is found again and needs no recomputation. Of equals the last arrival goes first. No
    opinion on shortages of rank. Source: the cost of recomputation, after vLLM's preemption by it. No
    options. Guarantees that of those who may be victims nobody with less to lose is left running.
    """

    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def choose_victims(self, shortage: Shortage, view: EngineView) -> list[int] | None:
        """Running ids, the cheapest to recompute first; who would free no block comes last."""
        if shortage.kind != "memory":
            return None
        size = view.block_size
        by_loss = sorted(
            view.running,
            key=lambda s: (not s.num_private_blocks, s.num_computed_tokens - s.num_shared_blocks * size, -s.id),
        )
        return [sequence.id for sequence in by_loss]
