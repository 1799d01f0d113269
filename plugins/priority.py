"""Classes of service: the urgent first, and a minimum for everybody."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated

import msgspec

from core_engine.classes import CLASS_PRIORITIES
from core_engine.cost import Load
from core_engine.hookspecs import hookimpl
from core_engine.plan import IterationRecord, Shortage
from core_engine.request import Status
from core_engine.view import EngineView, SequenceView, waiting_by_arrival

_priority = attrgetter("priority")
_id = attrgetter("id")


class PriorityOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`classes`: name to priority; `min_share`: 0 to 1; `window_iterations`: 1 to 4,096; `service_tokens`: 0 up."""

    classes: Annotated[dict[str, int], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: dict(CLASS_PRIORITIES)
    )
    preempt: bool = True
    min_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    window_iterations: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    service_tokens: Annotated[int, msgspec.Meta(ge=0)] = 16


class Priority:
    """Ranks by priority, lowest number first, and keeps a minimum of service for each class.

    `classes` ({"interactive":-10,"standard":0,"batch":10}): a request's priority puts it into the nearest class that is
    not more urgent, beyond the last into the last; ranking uses the number itself. With `preempt` (true) a
    more urgent request that finds no seat takes a less urgent one's. Minimum service, while more than one
    class has work, goes to the oldest request of each: it makes net progress worth at least `min_share` (0.1) of the
    predicted seconds over `window_iterations` (64), or runs in every iteration; with as many seats as
    classes it keeps one; and where there are fewer, whoever boards by it is no victim of rank until it has
    emitted `service_tokens` (16). Source: budgets of minimum service per queue. Guarantees, with seats for all
    classes with work and while memory allows, that under endless arrivals of more urgent requests the oldest of a
    class takes at most as many times longer than alone as the larger of 1 / `min_share` and the
    longest iteration over its own.
    """

    Options = PriorityOptions
    hookspec_range = (1, 1)

    def __init__(self, options: PriorityOptions, seed: int) -> None:
        if options.min_share * len(options.classes) > 1:
            raise ValueError(
                f"min_share {options.min_share} for each of {len(options.classes)} classes is more than there is; "
                f"it may be {1 / len(options.classes):.3g} at most"
            )
        self.options = options
        self._bounds = sorted(set(options.classes.values()))  # a class is known by its priority
        self._oldest: dict[int, SequenceView] = {}  # of each class with work, in this iteration
        self._window: deque[dict[int, float]] = deque(maxlen=options.window_iterations)  # seconds beyond the minimum
        self._must_run: set[int] = set()
        self._serving: dict[int, int] = {}  # sequence id -> output tokens until which it is no victim of rank

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        """Everybody by priority, among equals those that run first, then by arrival; who lacks service must run."""
        order = sorted([*view.running, *waiting_by_arrival(view)], key=_priority)
        self._oldest = self._oldest_by_class(order)
        self._serving = {
            sequence_id: until
            for sequence_id, until in self._serving.items()
            if (sequence := view.get(sequence_id)) is not None and sequence.num_output_tokens < until
        }
        chosen = self._whom_to_serve(self._has_seat_for_each(view)) if len(self._oldest) > 1 else []
        for sequence in chosen:
            if sequence.status is Status.WAITING:
                self._serving[sequence.id] = sequence.num_output_tokens + self.options.service_tokens
        self._must_run = {sequence.id for sequence in chosen}
        return [sequence.id for sequence in order], self._must_run

    @hookimpl
    def choose_victims(self, order: Sequence[int], shortage: Shortage, view: EngineView) -> list[int] | None:
        """For rank: the least urgent, for somebody more urgent or for minimum service; no opinion on memory."""
        if shortage.kind != "rank":
            return None
        if not self.options.preempt:
            return []
        spared = {view.running[0].id, *self._serving}  # the anchor is nobody's victim
        if self._has_seat_for_each(view):
            spared.update(sequence.id for sequence in self._oldest.values())
        found = (view.get(sequence_id) for sequence_id in reversed(order) if sequence_id not in spared)
        candidates = deque(sequence for sequence in found if sequence is not None)
        victims: list[int] = []
        missing_blocks = shortage.num_blocks

        def gives_way_to(waiting_id: int) -> bool:
            wanting = view.get(waiting_id)
            assert wanting is not None, "who wants a seat waits for it"
            return bool(candidates) and (waiting_id in self._must_run or candidates[0].priority > wanting.priority)

        # Free seats go to the first, so the last ones lack a seat each.
        for waiting_id in shortage.waiting_ids[len(shortage.waiting_ids) - shortage.num_sequences :]:
            if gives_way_to(waiting_id):
                missing_blocks -= candidates[0].num_private_blocks
                victims.append(candidates.popleft().id)
        while missing_blocks > 0 and gives_way_to(shortage.waiting_ids[0]):
            missing_blocks -= candidates[0].num_private_blocks
            victims.append(candidates.popleft().id)
        return victims

    @hookimpl
    def on_iteration_end(self, record: IterationRecord, view: EngineView) -> None:
        """Balance what the oldest of each class got against its minimum."""
        if len(self._oldest) < 2:
            return
        cost = view.cost_model
        seconds = cost.estimate(Load.of((row.num_computed_tokens, row.num_tokens) for row in record.rows))
        balance = dict.fromkeys(self._oldest, -self.options.min_share * seconds)
        bound_of = {sequence.id: bound for bound, sequence in self._oldest.items()}
        for row in record.rows:
            if (bound := bound_of.get(row.sequence_id)) is not None:
                # What it would take alone, a prompt in chunks as long as they come.
                longest = 1 if row.is_decode else view.token_limit
                alone = cost.estimate(Load.of([(row.num_computed_tokens, longest)]))
                balance[bound] += alone * row.num_new_tokens / longest
        self._window.append(balance)

    def _oldest_by_class(self, order: list[SequenceView]) -> dict[int, SequenceView]:
        oldest = {}
        start = 0
        for bound in self._bounds:
            last = bound == self._bounds[-1]
            end = len(order) if last else bisect_right(order, bound, lo=start, key=_priority)
            if end > start:
                oldest[bound] = min(order[start:end], key=_id)
            start = end
        return oldest

    def _whom_to_serve(self, has_seat_for_each: bool) -> list[SequenceView]:
        """Whose class lacks service or, with seats for all, its seat."""
        balance = {bound: sum(past.get(bound, 0.0) for past in self._window) for bound in self._oldest}
        lacking = [sequence for bound, sequence in self._oldest.items() if balance[bound] < 0]
        if has_seat_for_each:
            return lacking + [s for s in self._oldest.values() if s.status is Status.WAITING and s not in lacking]
        # They take turns: one more at a time boards, the worst off, and rides with those whose turn isn't over.
        waiting = [bound for bound, s in self._oldest.items() if balance[bound] < 0 and s.status is Status.WAITING]
        if not waiting:
            return lacking
        next_turn = self._oldest[min(waiting, key=balance.__getitem__)]
        return [s for s in lacking if s is next_turn or (s.status is Status.RUNNING and s.id in self._serving)]

    def _has_seat_for_each(self, view: EngineView) -> bool:
        return 1 < len(self._oldest) <= view.sequence_limit
