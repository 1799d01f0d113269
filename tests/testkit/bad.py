"""Policies that are wrong on purpose, each in one way, to prove that the kit notices."""

from __future__ import annotations

import random
from collections.abc import Sequence

from core_engine.budget import Budget
from core_engine.hookspecs import NoOptions, hookimpl
from core_engine.kv import FreeListAllocator
from core_engine.plan import IterationPlan, PrefillLimit, Reject, Shortage
from core_engine.request import Request
from core_engine.view import EngineView, SequenceView, waiting_by_arrival


class Bad:
    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options: NoOptions, seed: int) -> None:
        self.seen: list[object] = []


def everybody(view: EngineView) -> list[SequenceView]:
    return [*view.running, *waiting_by_arrival(view)]


class NeverFinishes(Bad):
    """Computes prompts, never an answer."""

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget
    ) -> IterationPlan:
        for sequence in [*running, *waiting]:
            if sequence.num_pending_tokens > 1:
                budget.take(sequence, sequence.num_pending_tokens)
        return budget.plan()


class Starves(Bad):
    """The newest first, for ever."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        return sorted((s.id for s in everybody(view)), reverse=True), set()


class StarvesWhoRuns(Bad):
    """Lets everybody board and goes on with the newest only."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        return sorted((s.id for s in everybody(view)), reverse=True), set()

    @hookimpl
    def choose_victims(self, order: Sequence[int], shortage: Shortage) -> Sequence[int]:
        return list(reversed(order))


class HoldsResults(Bad):
    """Never delivers by itself."""

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget
    ) -> IterationPlan:
        for sequence in [*running, *waiting]:
            budget.take(sequence, sequence.num_pending_tokens)
        return budget.plan(deliver=False)


class HoldsEverybody(Bad):
    """A gate that is always shut."""

    @hookimpl
    def limit_prefill(self) -> PrefillLimit:
        return PrefillLimit(new_sequences=0, reason="shut")


class OverCommits(Bad):
    """Plans all that is pending, whatever the limits."""

    @hookimpl
    def plan_iteration(self, running: Sequence[SequenceView], waiting: Sequence[SequenceView]) -> IterationPlan:
        return IterationPlan({s.id: s.num_pending_tokens for s in [*running, *waiting]})


class NonDeterministic(Bad):
    """Draws from a generator that nobody seeded."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        ids = [s.id for s in everybody(view)]
        random.shuffle(ids)
        return ids, set()


class OrderOfASet(Bad):
    """Goes by the order of a set of strings, which is another in every process."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        names = list({s.request_id for s in everybody(view)})
        return [s.id for s in sorted(everybody(view), key=lambda s: names.index(s.request_id))], set()


class Slow(Bad):
    """Compares everybody with everybody."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        ids = [s.id for s in everybody(view)]
        smaller = {i: sum(1 for j in ids if j < i) for i in ids}
        return sorted(ids, key=smaller.__getitem__), set()


class Raises(Bad):
    """Fails as soon as two sequences run."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        if len(view.running) >= 2:
            raise KeyError("no such thing")
        return [], set()


class RaisesOnTheWay(Bad):
    """Fails where a planner's `take` asks it."""

    @hookimpl
    def reserve_blocks(self) -> int:
        raise KeyError("no such thing")


class ExpectsToHaveSeenAll(Bad):
    """Takes for granted that it was there when everybody came."""

    @hookimpl
    def admit_request(self, request: Request) -> None:
        self.seen.append(request.id)

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        return sorted((s.id for s in everybody(view)), key=lambda i: self.seen.index(view.get(i).request_id)), set()

    @hookimpl
    def on_request_finished(self, request: Request) -> None:
        self.seen.remove(request.id)


class Exits(Bad):
    """Wants to end the process."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> None:
        raise SystemExit(1)


class Remembers(Bad):
    """Keeps a word of everybody it has ever seen."""

    @hookimpl
    def on_request_finished(self, request: Request) -> None:
        self.seen.append(request.id)


class Refuses(Bad):
    """Asks everybody to come back, and refuses again."""

    @hookimpl
    def admit_request(self) -> Reject:
        return Reject(reason="later", retry_after_seconds=1.0)


class LosesBlocks(Bad):
    """An allocator that now and then forgets a block that was given back."""

    @hookimpl
    def create_block_allocator(self, num_blocks: int) -> FreeListAllocator:
        class Losing(FreeListAllocator):
            def release(self, blocks: list[int]) -> None:
                super().release(blocks[1:])

        return Losing(num_blocks)


class BreaksItsPromise(Bad):
    """The newest first, until somebody has waited 400 iterations, and says that it takes 40."""

    promised_wait_iterations = 40

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        waiting = list(waiting_by_arrival(view))
        aged = [s.id for s in waiting if view.iteration - s.arrival_iteration >= 400]
        return [s.id for s in view.running] + aged + sorted((s.id for s in waiting), reverse=True), set()
