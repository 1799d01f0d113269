"""Prompts before decodes: the shortest way to a first token, paid for by everybody who is past theirs."""

from __future__ import annotations

from collections.abc import Sequence

from core_engine.budget import Budget
from core_engine.hookspecs import NoOptions, hookimpl
from core_engine.plan import IterationPlan
from core_engine.view import SequenceView


class PrefillFirst:
    """Plans prompts before decodes: while any prompt can run, no decode does.

    Running prompts are continued, then new ones start, in rank order and in chunks up to the token
    limit; an iteration in which no prompt finds tokens, a seat or blocks runs every decode. Source: early
    vLLM, whose iterations were either prompts or decodes. No options. Guarantees that no iteration holds both,
    what the engine itself puts into the budget aside (its care for its oldest sequence, what must run);
    so streams stall for as long as prompts keep coming and find seats.
    """

    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget
    ) -> IterationPlan:
        """Prompts in rank order; without any, the decodes."""
        any_prompt = False
        for sequence in running:
            if sequence.num_pending_tokens > 1 and budget.take(sequence, sequence.num_pending_tokens):
                any_prompt = True
        for sequence in waiting:
            if budget.tokens_left <= 0 or budget.sequences_left <= 0:
                break
            if budget.take(sequence, sequence.num_pending_tokens):
                any_prompt = True
            elif not budget.may_be_passed(sequence.id):
                break
        if not any_prompt:
            for sequence in running:
                budget.take(sequence, 1)
        return budget.plan()
