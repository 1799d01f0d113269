"""Request-level batching, the baseline: a batch is fixed when it starts and answers when all are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from core_engine.budget import Budget
from core_engine.hookspecs import hookimpl
from core_engine.plan import IterationPlan
from core_engine.view import EngineView, SequenceView


class StaticBatchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`batch_size`: members of a batch, 1 to 4,096; the others say what finished rows, prompts and KV cost.

    `keep_finished_rows`: a finished member costs an idle row until the batch ends. `pad`: each prompt
    costs as many rows as the longest of the batch. `reserve`: `max` takes the KV blocks of prompt and
    max_tokens on start, `none` on demand.
    """

    batch_size: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 32
    keep_finished_rows: bool = False
    pad: bool = False
    reserve: Literal["none", "max"] = "none"


class StaticBatch:
    """Static batching: when nothing runs, starts up to `batch_size` (32) of those that wait.

    The members of a batch, as many as fit the free blocks, are fixed then; nobody else joins, and their
    results are delivered together when the last is done. Whole prompts come first, over as many
    iterations as the token limit makes necessary; decodes begin when no prompt is left that could run,
    the engine's care for its oldest sequence aside. Options: `keep_finished_rows` (false) and `pad`
    (false) execute idle rows for finished members and for prompts shorter than the longest, as far
    as the token limit has room; `reserve` (none or max) takes all blocks that a member can need on start.
    Source: the request-level baseline of Orca (OSDI '22). Guarantees that a batch is delivered
    whole, unless memory made members start over; a newcomer waits for the longest member of the batch before.
    """

    Options = StaticBatchOptions
    hookspec_range = (1, 1)
    whole_prompts = True

    def __init__(self, options: StaticBatchOptions, seed: int) -> None:
        self.options = options
        self._members: set[int] = set()  # neither finished nor cancelled
        self._size = 0  # members that the batch has had
        self._padding_rows = 0  # still to be executed

    @hookimpl
    def reserve_blocks(self, sequence: SequenceView, view: EngineView) -> int | None:
        """All that the sequence can ever need, with `reserve=max`; else no opinion."""
        return self._blocks_at_start(sequence, view) if self.options.reserve == "max" else None

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget, view: EngineView
    ) -> IterationPlan:
        """The members' prompts; when none of them can run, one token of each member."""
        self._members = {member for member in self._members if view.get(member) is not None}
        if not self._members and not running:
            self._form(waiting, view)
        # Whom the engine let board by its own rules rides with the batch.
        boarded = {sequence.id for sequence in running} - self._members
        self._members |= boarded
        self._size += len(boarded)

        decodes = [sequence for sequence in running if sequence.num_pending_tokens == 1]
        prompts = [sequence for sequence in running if sequence.num_pending_tokens > 1]
        prompts += [sequence for sequence in waiting if sequence.id in self._members]
        finished_rows = 0
        if not self._take_prompts(prompts, budget, may_split=not decodes):
            for sequence in decodes:
                budget.take(sequence, 1)
            if self.options.keep_finished_rows:
                finished_rows = self._size - len(self._members)
        plan = budget.plan(deliver=False, idle_rows=finished_rows + self._padding_rows)
        self._padding_rows -= max(0, plan.idle_rows - finished_rows)
        return plan

    def _form(self, waiting: Sequence[SequenceView], view: EngineView) -> None:
        members: list[SequenceView] = []
        free_blocks = view.num_free_blocks
        for sequence in waiting[: min(self.options.batch_size, view.sequence_limit)]:
            free_blocks -= self._blocks_at_start(sequence, view)
            if members and free_blocks < 0:
                break
            members.append(sequence)
        self._members = {sequence.id for sequence in members}
        self._size = len(members)
        prompts = [sequence.num_prompt_tokens for sequence in members]
        self._padding_rows = len(prompts) * max(prompts) - sum(prompts) if self.options.pad and prompts else 0

    def _blocks_at_start(self, sequence: SequenceView, view: EngineView) -> int:
        longest = sequence.num_prompt_tokens + sequence.max_tokens
        tokens = longest if self.options.reserve == "max" else sequence.num_tokens + 1
        return -(-tokens // view.block_size)

    def _take_prompts(self, prompts: list[SequenceView], budget: Budget, may_split: bool) -> bool:
        """Take every whole prompt that fits; whether there was one."""
        taken = [budget.take(sequence, sequence.num_pending_tokens, whole=True) for sequence in prompts]
        if not any(taken) and may_split:
            # A recomputation of more tokens than even a lone prompt may have.
            taken = [budget.take(sequence, sequence.num_pending_tokens) for sequence in prompts[:1]]
        return any(taken)
