"""A gate that learns from memory shortages how many sequences the KV pool carries."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.plan import MemoryShortage, PrefillLimit
from core_engine.request import Status
from core_engine.view import EngineView


class KvFeedbackOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`window`: iterations, 1 to 4,096; `decrease`: factor, 0.1 to 0.9; `increase`: share of the seats, 0.001 to 1."""

    window: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    decrease: Annotated[float, msgspec.Meta(ge=0.1, le=0.9)] = 0.5
    increase: Annotated[float, msgspec.Meta(ge=0.001, le=1)] = 0.05


class KvFeedback:
    """Boards fewer when memory runs short, and slowly more again: additive increase, multiplicative decrease.

    One share governs both how many sequences run (that share of the sequence limit) and how many start (that
    share, rounded up, of the seats then left). A shortage, at most once in `window` (64) iterations, sets it to
    `decrease` (0.5) times what ran; while there is none it recovers by `increase` (0.05) per window, never
    below one seat; at 1 the gate has no opinion. A shortage is a running sequence without its next
    blocks, which is what leads to preemptions, or a refusal of the allocator; that a newcomer finds no room
    hurts nobody. Source: AIMD congestion control (Chiu and Jain, 1989) on the practice of lowering
    the boarding rate at once when allocations fail. Guarantees that nobody starts beyond the
    share, except for what the engine lets board by its own rules.
    """

    Options = KvFeedbackOptions
    hookspec_range = (1, 1)

    def __init__(self, options: KvFeedbackOptions, seed: int) -> None:
        self.options = options
        self.share = 1.0  # of the sequence limit
        self._decreased_iteration: int | None = None
        self._shortage_iteration: int | None = None

    @hookimpl
    def on_memory_shortage(self, event: MemoryShortage, view: EngineView) -> None:
        """Decrease, if that was not done lately."""
        if event.cause == "take" and event.sequence_id is not None:
            sequence = view.get(event.sequence_id)
            if sequence is None or sequence.status is not Status.RUNNING:
                return
        self._shortage_iteration = event.iteration
        last = self._decreased_iteration
        if last is None or event.iteration - last >= self.options.window:
            self._decreased_iteration = event.iteration
            ran = len(view.running) / view.sequence_limit
            self.share = max(1 / view.sequence_limit, self.options.decrease * min(self.share, ran))

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """The seats that the share leaves; recovers a little first."""
        if self._shortage_iteration != view.iteration:
            self.share = min(1.0, self.share + self.options.increase / self.options.window)
        if self.share >= 1:
            return None
        left = max(0, int(self.share * view.sequence_limit) - len(view.running))
        return PrefillLimit(new_sequences=math.ceil(self.share * left), reason="memory ran short")
