"""Policies that do everything wrong that we could think of, at random, but the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from core_engine.budget import Budget
from core_engine.hookspecs import hookimpl
from core_engine.kv import FreeListAllocator
from core_engine.plan import Shortage
from core_engine.request import Request
from core_engine.view import EngineView, SequenceView
from tests.simulation.misdeeds import NONSENSE, Boom, Planning, raises


class HostileAllocator:
    """A free list that now and then answers something else."""

    def __init__(self, misdeed: str, num_blocks: int, draw: random.Random) -> None:
        self._inner = FreeListAllocator(num_blocks)
        self._misdeed = misdeed
        self._num_blocks = num_blocks
        self._draw = draw

    def allocate(self, num_blocks: int) -> Any:
        if self._misdeed == "one at most":
            return self._inner.allocate(min(1, num_blocks))
        if self._draw.random() < 0.8:
            return self._inner.allocate(num_blocks)
        match self._misdeed:
            case "raise":
                raise Boom("allocate")
            case "owned":
                return [self._draw.randrange(self._num_blocks) for _ in range(num_blocks)]
            case "duplicates":
                return self._inner.allocate(num_blocks)[:1] * num_blocks
            case "short":
                return self._inner.allocate(self._draw.randint(0, num_blocks))
            case "lose":
                self._inner.allocate(2)
                return self._inner.allocate(num_blocks)
            case "none":
                return []
            case _:
                return self._draw.choice(NONSENSE)

    def release(self, blocks: list[int]) -> None:
        if self._misdeed == "forget" and self._draw.random() < 0.5:
            return
        if self._misdeed == "raise" and self._draw.random() < 0.1:
            raise Boom("release")
        self._inner.release(blocks)
        if self._misdeed == "empty" and self._draw.random() < 0.2:
            blocks.clear()


class Hostile:
    """Commits the misdeeds it is given, one drawn anew for each question; `share` of the time it has no opinion."""

    whole_prompts = True

    def __init__(self, misdeeds: dict[str, list[Any]], seed: int, share: float = 0.3) -> None:
        self._misdeeds = misdeeds
        self._seed = seed
        self._draw = random.Random(seed)
        self._share = share

    def __repr__(self) -> str:
        names = {hook: [getattr(m, "__name__", m) for m in misdeeds] for hook, misdeeds in self._misdeeds.items()}
        return f"Hostile({names}, seed={self._seed}, share={self._share})"

    def _answer(self, hook: str, *arguments: Any) -> Any:
        misdeeds: list[Callable[..., Any]] = self._misdeeds.get(hook, [])
        if not misdeeds or self._draw.random() < self._share:
            return None
        misdeed = self._draw.choice(misdeeds)
        return misdeed(*arguments) if misdeed is raises else misdeed(self._draw, *arguments)

    @hookimpl
    def rank_sequences(self, view: EngineView) -> Any:
        return self._answer("rank", view)

    @hookimpl
    def limit_prefill(self, view: EngineView) -> Any:
        return self._answer("limit", view)

    @hookimpl
    def choose_victims(self, order: Sequence[int], shortage: Shortage, view: EngineView) -> Any:
        return self._answer("victims", order, view)

    @hookimpl
    def reserve_blocks(self, sequence: SequenceView, view: EngineView) -> Any:
        return self._answer("reserve", sequence, view)

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget, view: EngineView
    ) -> Any:
        return self._answer("plan", Planning(running, waiting, budget, view))

    @hookimpl
    def admit_request(self, request: Request, view: EngineView) -> Any:
        return self._answer("admit", request)

    @hookimpl
    def predict_output_tokens(self, request: Request, view: EngineView) -> Any:
        return self._answer("predict", request)

    @hookimpl
    def create_block_allocator(self, num_blocks: int, block_size: int) -> Any:
        misdeeds = self._misdeeds.get("allocate", [])
        return HostileAllocator(self._draw.choice(misdeeds), num_blocks, self._draw) if misdeeds else None

    @hookimpl
    def on_memory_shortage(self, event: Any) -> Any:
        return self._answer("tell")

    @hookimpl
    def on_iteration_end(self, record: Any) -> Any:
        return self._answer("tell")

    @hookimpl
    def on_request_finished(self, request: Request, outcome: Any) -> Any:
        return self._answer("tell")
