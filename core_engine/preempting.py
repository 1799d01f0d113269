"""Preempting: who gives blocks or a seat back, before anything is planned, so that nothing is undone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from core_engine import answers
from core_engine.deciding import Deciding, Order
from core_engine.panel import Panel
from core_engine.plan import MemoryShortage, PrefillLimit, Shortage
from core_engine.request import Sequence
from core_engine.state import EngineState


class Preempting:
    """Covers shortages by victims that policies choose.

    Never a victim: the anchor, whoever boarded because overdue, and what is in flight.
    """

    def __init__(self, state: EngineState, panel: Panel, deciding: Deciding) -> None:
        self._state = state
        self._panel = panel
        self._deciding = deciding

    def for_memory(self, order: Order) -> None:
        """Free enough blocks for the next token of every decode (and of an anchor that is stalled)."""
        state = self._state
        state.preempted = {}
        state.num_preempted_this_iteration = 0
        size = state.block_size
        lacking = {s.id for s in state.decodes if s.num_computed_tokens == len(s.block_table) * size}
        if state.anchor_is_stalled and state.running:
            anchor = state.running[0]
            if anchor.num_computed_tokens == len(anchor.block_table) * size:
                lacking.add(anchor.id)
        missing = len(lacking) - state.num_free_blocks
        if state.anchor_is_stalled and state.running and state.running[0].id in state.refused:
            # Blocks are free, yet the allocator has none for the anchor: all others make room.
            missing = state.num_blocks
        if missing <= 0:
            return
        self.tell_shortage("next_block", None, missing)
        shortage = Shortage(kind="memory", num_blocks=missing)
        chosen = self._ask(order, shortage)
        for victim in self._eligible([*chosen, *(s.id for s in reversed(order.running))]):
            if missing <= 0:
                break
            if victim.num_private_blocks or victim.id in lacking:
                missing -= self._preempt(victim, order, "memory") + (victim.id in lacking)
                state.num_preempted_this_iteration += 1

    def for_rank(self, order: Order, limit: PrefillLimit) -> None:
        """Give the seats and blocks of worse ranked sequences to better ranked waiting ones, if a policy says so."""
        state = self._state
        if not state.running or not order.waiting:
            return
        last = order.running[-1] if order.running else None
        must_run = {s.id for s in order.must_run}
        if last is None or (not must_run and order.place(order.waiting[0]) > order.place(last)):
            return
        wanting = self._wanting(order, order.place(last), must_run, limit)
        if not wanting:
            return
        first = wanting[0]
        seats = max(0, len(wanting) - (state.sequence_limit - len(state.running)))
        first_chunk = min(first.num_pending_tokens, state.token_limit)
        needed = max(self._deciding.reserve(first), state.pool.blocks_for(first_chunk))
        if first.id not in must_run:
            needed += limit.keep_free_blocks or 0
        blocks = max(0, needed - state.num_free_blocks)
        if not seats and not blocks:
            return
        shortage = Shortage(
            kind="rank", num_sequences=seats, num_blocks=blocks, waiting_ids=tuple(s.id for s in wanting)
        )
        may_take_any = any(s.id in must_run for s in wanting)
        for victim in self._eligible(self._ask(order, shortage)):
            if seats <= 0 and blocks <= 0:
                break
            if may_take_any or order.place(victim) > order.place(first):
                seats -= 1
                blocks -= self._preempt(victim, order, "rank")

    def _wanting(self, order: Order, last: tuple[int, int], must_run: set[int], limit: PrefillLimit) -> list[Sequence]:
        """Waiting sequences, best first, that may take a seat: those that rank before `last`, or must run."""
        starts = limit.new_sequences if limit.new_sequences is not None else len(order.waiting)
        if limit.prompt_tokens == 0 or limit.seconds == 0:
            starts = 0
        wanting = []
        for sequence in takewhile(lambda waiting: order.place(waiting) < last, order.waiting):
            forced = sequence.id in must_run
            held = sequence.id in limit.held or self._deciding.sharing.match(sequence).waits
            if forced or (starts > 0 and not held):
                wanting.append(sequence)
                starts -= not forced
        wanting += (s for s in order.must_run if s in self._state.waiting_queues and order.place(s) > last)
        return wanting

    def tell_clamped(self, clamped: dict[int, int]) -> None:
        """A planner's wishes that free blocks cut short."""
        for sequence_id, num_blocks in clamped.items():
            self.tell_shortage("take", sequence_id, num_blocks)

    def tell_shortage(self, cause: str, sequence_id: int | None, num_blocks: int) -> None:
        """Count one memory shortage and tell it."""
        state = self._state
        state.num_memory_shortages += 1
        state.shortages[cause] = state.shortages.get(cause, 0) + 1
        event = MemoryShortage(
            iteration=state.iteration,
            cause=cause,  # type: ignore[arg-type]
            sequence_id=sequence_id,
            num_blocks=num_blocks,
        )
        self._panel.tell("on_memory_shortage", event, state)

    def _ask(self, order: Order, shortage: Shortage) -> list[int]:
        ids = [s.id for s in order.running]
        return self._panel.ask_one("choose_victims", answers.victims, ids, shortage, self._state) or []

    def _eligible(self, ids: Iterable[int]) -> Iterable[Sequence]:
        state = self._state
        anchor = state.anchor()
        for sequence_id in dict.fromkeys(ids):
            sequence = state.get(sequence_id)
            if sequence is None or not state.is_running(sequence_id) or sequence is anchor:
                continue
            if sequence_id not in state.protected and not sequence.in_flight:
                yield sequence

    def _preempt(self, victim: Sequence, order: Order, cause: str) -> int:
        order.running.remove(victim)
        return self._state.preempt(victim, cause)
