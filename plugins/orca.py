"""Orca's own scheduling: iteration-level, first come first served, whole prompts, whole reservations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from core_engine.budget import Budget
from core_engine.hookspecs import hookimpl
from core_engine.plan import IterationPlan
from core_engine.view import EngineView, SequenceView


class OrcaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`max_batch`: sequences in one iteration, 1 to 4,096; `output`: which length a reservation counts on."""

    max_batch: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 32
    output: Literal["declared", "predicted"] = "declared"


class Orca:
    """Iteration-level FCFS as in Algorithm 1 of Orca (OSDI '22).

    At each iteration up to `max_batch` (32) sequences run: those already running, then waiting ones in
    order, each with its whole prompt in one iteration, until the first that doesn't fit. A start takes
    blocks for prompt and output at once: `output=declared` counts on max_tokens, as the paper does, and
    then no sequence is ever preempted for memory; `output=predicted` on the prediction, beyond which a
    sequence grows on demand and may be preempted. Guarantees, with ranks by arrival and a waiting window
    of at least `max_batch`, that while two requests are unfinished the earlier one has run at least as
    many iterations as the later one. (A shorter window may hide it behind others of its class.)
    A prompt longer than the token limit runs alone, once all before it are done.
    """

    Options = OrcaOptions
    hookspec_range = (1, 1)
    whole_prompts = True

    def __init__(self, options: OrcaOptions, seed: int) -> None:
        self.options = options

    @hookimpl
    def reserve_blocks(self, sequence: SequenceView, view: EngineView) -> int:
        """Blocks for the prompt and the output that is counted on, at least for what is known."""
        declared = self.options.output == "declared"
        output = sequence.max_tokens if declared else sequence.predicted_output_tokens
        tokens = max(sequence.num_prompt_tokens + output, sequence.num_tokens)
        return -(-tokens // view.block_size)

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget
    ) -> IterationPlan:
        """Whole prompts and decodes in order, up to the first that doesn't fit."""
        for sequence in [*running, *waiting][: self.options.max_batch]:
            if budget.take(sequence, sequence.num_pending_tokens, whole=True):
                continue
            if budget.tokens_left == budget.token_limit:
                # Recomputation of more tokens than even a lone prompt may have.
                budget.take(sequence, sequence.num_pending_tokens)
            if not budget.granted(sequence.id):
                break
        return budget.plan()
