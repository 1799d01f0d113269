"""Deciding: who goes first, how much prompt work may join, and the plan of one iteration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from core_engine import answers
from core_engine.budget import Budget
from core_engine.panel import BadAnswer, Panel
from core_engine.plan import IterationPlan, PrefillLimit, tightest
from core_engine.request import Sequence
from core_engine.sharing import Sharing
from core_engine.state import EngineState
from core_engine.view import SequenceView


class Order:
    """Running and visible waiting sequences in rank order, and those that must run."""

    __slots__ = ("_position", "by_arrival", "must_run", "running", "waiting")

    def __init__(
        self, running: list[Sequence], waiting: list[Sequence], prefix: list[int], must_run: list[Sequence]
    ) -> None:
        self.running = running
        self.waiting = waiting
        self.must_run = must_run
        self.by_arrival = not prefix
        self._position = {sequence_id: place for place, sequence_id in enumerate(prefix)}

    def place(self, sequence: Sequence) -> tuple[int, int]:
        """Sorts before another's if the sequence ranks before it; the rest follows the prefix by arrival."""
        return self._position.get(sequence.id, len(self._position)), sequence.id


class Deciding:
    """Asks rank, gates and planner, and turns their answers into one legal plan.

    `held` is what the last plan's budget held back: sequence id to policy and reason.
    """

    def __init__(self, state: EngineState, panel: Panel) -> None:
        self._state = state
        self._panel = panel
        self.sharing = Sharing(state)
        self._reservations: dict[int, int] = {}
        self.held: dict[int, str] = {}
        self.clamped: dict[int, int] = {}  # what blocks cut short: sequence id to blocks it lacked

    def rank(self) -> Order:
        """Ask for the ranking and repair it to a permutation."""
        state = self._state
        self._reservations.clear()
        running, waiting = list(state.running), list(state.waiting_queues.window())
        answer = self._panel.ask_one("rank_sequences", answers.ranking, state)
        if answer is None or not (answer[0] or answer[1]):
            return Order(running, waiting, [], [])
        prefix = list(dict.fromkeys(answer[0]))
        order = Order(running, waiting, prefix, [])
        if prefix:
            running.sort(key=order.place)
            waiting.sort(key=order.place)
        found = (state.get(sequence_id) for sequence_id in answer[1])
        order.must_run.extend(sorted((s for s in found if s is not None), key=order.place))
        return order

    def limit_prefill(self) -> PrefillLimit:
        """Ask all gates; the tightest of each field holds."""
        return tightest(self._panel.ask_all("limit_prefill", answers.prefill_limit, self._state))

    def reserve(self, sequence: SequenceView) -> int:
        """Blocks that the sequence takes at once when it starts; asked once an iteration and sequence."""
        reserved = self._reservations.get(sequence.id)
        if reserved is None:
            reserved = ask_reservation(self._panel, self._state, sequence)
            if sequence.id in self._state.protected:
                # Whoever boards because overdue must reach its next token without a further block.
                reserved = max(reserved, self._state.pool.blocks_for(sequence.num_tokens))
            self._reservations[sequence.id] = reserved
        return reserved

    def plan(self, order: Order, limit: PrefillLimit) -> IterationPlan:
        """Ask the planners in turn, each with a fresh Budget, for a plan that survives the replay."""
        state = self._state
        self._reservations.clear()  # whoever is overdue now needs more than a policy asks for
        self.sharing.forget()
        if not state.running and order.waiting and limit.stops(order.waiting[0].id):
            state.rescues["gates"] += 1
        overdue = self._overdue()
        for policy, is_default, ask in self._panel.asking("plan_iteration"):
            whole = bool(getattr(policy, "whole_prompts", False))
            budget = self._budget(order, limit, whole, overdue)
            fresh_budget = None if is_default else partial(self._budget, order, limit, whole, overdue)
            check = _Replay(budget, fresh_budget, state)
            plan: IterationPlan | None = ask(check, list(order.running), list(order.waiting), budget, state)
            if plan is not None:
                self.held, self.clamped = budget.held, budget.clamped
                return plan
        raise AssertionError("the default planner always answers")

    def _overdue(self) -> list[Sequence]:
        """Who is beyond the bound on waiting: running without a first token, by arrival, then waiting, longest first.

        Those that wait are protected from here on.
        """
        state, bound = self._state, self._state.config.max_wait_iterations
        for sequence_id in [i for i, s in state.protected.items() if s in state.waiting_queues]:
            del state.protected[sequence_id]
        latest = state.iteration - bound
        overdue = [s for s in state.running if s.first_token_seconds is None and s.arrival_iteration <= latest]
        seats = max(1, state.sequence_limit - len(state.running))
        waiting = state.waiting_queues.overdue(state.iteration, bound, at_most=seats)
        # A sibling that waits for another to compute the prompt gives that one its turn.
        overdue += (self.sharing.leader(sequence) for sequence in waiting)
        state.protected.update((s.id, s) for s in overdue if s in state.waiting_queues)
        return overdue

    def _budget(self, order: Order, limit: PrefillLimit, whole_prompts: bool, overdue: list[Sequence]) -> Budget:
        """A Budget with everything in it that must run."""
        state = self._state
        anchor = state.anchor()
        exempt: set[int] = set()
        if not state.running and order.waiting:
            exempt.add(order.waiting[0].id)
        budget = Budget(
            token_limit=state.token_limit,
            sequences_left=state.sequence_limit - len(state.running),
            blocks_left=state.num_free_blocks,
            block_size=state.block_size,
            reserve=self.reserve,
            match=self.sharing.match,
            is_free=state.pool.is_free,
            limit=limit,
            exempt=exempt,
            floor_id=anchor.id if anchor else None,
            lone_prompt_tokens=self._lone_prompt_tokens() if whole_prompts else 0,
            cost=state.cost_model,
            decodes=state.decode_load if limit.seconds is not None else None,
        )
        if anchor is not None and state.anchor_is_stalled:
            budget.require(anchor)
        for sequence in state.protected.values():
            if sequence not in state.waiting_queues:
                budget.require(sequence)
        closed = False
        for sequence in overdue:
            refused = sequence.id in state.refused and sequence in state.waiting_queues
            if not budget.require(sequence) or refused:
                # What becomes free is kept for it, so nobody else starts.
                budget.close()
                closed = True
                break
        for sequence in order.must_run:
            if not (closed and sequence in state.waiting_queues):
                budget.require(sequence)
        return budget

    def _lone_prompt_tokens(self) -> int:
        longest = self._state.spec.max_lone_prompt_tokens
        return self._state.spec.max_model_len if longest is None else longest


def ask_reservation(panel: Panel, state: EngineState, sequence: SequenceView) -> int:
    """Blocks that policies want the sequence to take at once."""
    most = state.pool.blocks_for(sequence.num_prompt_tokens + sequence.max_tokens)
    return panel.ask_one("reserve_blocks", answers.clamped(0, most), sequence, state) or 0


class _Replay:
    """The check of a plan: legal is what a fresh Budget grants.

    The Budget that the planner had may be doctored, so it counts only where no fresh one is given: for
    the engine's own planner.
    """

    def __init__(self, budget: Budget, fresh_budget: Callable[[], Budget] | None, state: EngineState) -> None:
        self._budget = budget
        self._fresh_budget = fresh_budget
        self._state = state

    def __call__(self, answer: Any) -> IterationPlan:
        plan = answers.plan_shape(answer)
        budget = self._budget if self._fresh_budget is None else self._replayed(plan, self._fresh_budget())
        if plan.idle_rows > max(0, budget.tokens_left):
            raise BadAnswer(f"{plan.idle_rows} idle rows exceed the {max(0, budget.tokens_left)} tokens left")
        return budget.plan(deliver=plan.deliver, idle_rows=plan.idle_rows)

    def _replayed(self, plan: IterationPlan, budget: Budget) -> Budget:
        for sequence_id, num_tokens in plan.num_tokens.items():
            sequence = self._state.get(sequence_id) if type(sequence_id) is int else None
            if sequence is None:
                raise BadAnswer(f"plans {sequence_id!r:.40}, which neither runs nor waits")
            if type(num_tokens) is not int or num_tokens < 1:
                raise BadAnswer(f"plans {num_tokens!r:.40} tokens of sequence {sequence_id}")
            wanted = num_tokens - budget.granted(sequence_id)
            if wanted > 0 and budget.take(sequence, wanted, whole=wanted > budget.tokens_left) < wanted:
                raise BadAnswer(f"plans {num_tokens} tokens of sequence {sequence_id}, more than the budget has")
        return budget
