"""Every hook with its contract: the manual for authors of policies.

A policy is a class behind an entry point of the group `jitney.policies`, built as
`Policy(options, seed)`. It implements any of these hooks as methods marked with `hookimpl`, and takes
only the arguments it names. Class attributes: `Options` (a msgspec Struct; wrong options are refused
at start), `hookspec_range` (the first and last HOOKSPEC_VERSION it works with) and, where they
apply, `whole_prompts` (see `plan_iteration`) and `promised_wait_iterations` (after so many a request is
next, behind those that have waited as long; shown to operators).

*Ask one* hooks take the first answer that is not None, in configuration order, the defaults last. *Ask
all* hooks combine every answer. *Tell* hooks are heard by everyone. A policy that raises, or whose
answer fails the engine's check, is logged and counted, and the question goes on to the next; with too
many faults it is retired. Hooks are called on the engine thread, per iteration or per request, never
per token. A policy knows time only as `view.now` and randomness only through its seed, so that it
replays exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core_engine.budget import Budget
    from core_engine.callers import Caller
    from core_engine.kv import BlockAllocator
    from core_engine.messages import Outcome
    from core_engine.plan import (
        Admit,
        IterationPlan,
        IterationRecord,
        MemoryShortage,
        PrefillLimit,
        Reject,
        Shortage,
    )
    from core_engine.request import Request
    from core_engine.view import EngineView, SequenceView

HOOKSPEC_VERSION = 1
PROJECT = "jitney"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`Options` of policies that have none."""


class HookSpecs:
    """The questions that the engine asks and the events it tells, in the order of an iteration."""

    @hookspec
    def identify_caller(self, headers: Mapping[str, str], key: str | None) -> Caller | None:
        """Ask one, for every HTTP request, in the gateway: whose it is.

        `headers` have lower-case names; `key` is the API key sent, if any, known or not. Asked of an
        instance of its own in the gateway's process, fixed at start, which must not block. Without an
        answer: what the configuration says of the key, else an anonymous caller. Check: type and fields.
        """

    @hookspec
    def create_block_allocator(self, num_blocks: int, block_size: int) -> BlockAllocator | None:
        """Ask one, at start only: which free block is handed out next.

        Answer: an object with `allocate` and `release` over blocks `0 .. num_blocks - 1`.
        Check: the pool audits every grant; at the first wrong one it goes on with a free list.
        """

    @hookspec
    def admit_request(self, request: Request, view: EngineView) -> Admit | Reject | None:
        """Ask all, on arrival: may this request wait here? Any rejection wins.

        A policy that charges for it does so when it answers Admit, and refunds on
        `on_request_finished`, which is told at once with a rejected outcome where another policy rejects.
        The `limits` of all answers together become response headers. Before anybody is asked the
        engine refuses what can never fit the model or the pool. Check: type, and a positive
        `retry_after_seconds`.
        """

    @hookspec
    def predict_output_tokens(self, request: Request, view: EngineView) -> int | None:
        """Ask one, on arrival: how many tokens will it generate? Clamped to 1 .. max_tokens.

        Without an answer: a moving quantile by tenant and prompt length. Source: predicted-length
        scheduling (for example S3 and SSJF); most clients leave max_tokens out.
        """

    @hookspec
    def rank_sequences(self, view: EngineView) -> tuple[Sequence[int], set[int]] | None:
        """Ask one, every iteration: `(ids, must_run)`, ids of running and waiting sequences, best first.

        A prefix is enough: the rest follows by arrival, running and waiting alike. Unknown or repeated
        ids are passed over. For each id in `must_run`, in rank order, the engine first takes one decode
        token or one block of prompt, within its own limits but not the gates'; a waiting one
        that finds no seat is a rank shortage (`choose_victims`).
        """

    @hookspec
    def choose_victims(self, order: Sequence[int], shortage: Shortage, view: EngineView) -> Sequence[int] | None:
        """Ask one, at a shortage: ids of running sequences to preempt, first victim first.

        `order`: the ids of the running, best rank first. A victim loses its blocks, waits again at its
        old place by arrival and is recomputed. Only as many as the shortage needs are taken.
        Check: running, not the anchor, not protected, not in flight. For `shortage.kind` memory the
        engine goes on from the back of the order until it is covered; for rank nobody is a legal answer
        and what you get without one. Source: vLLM preempts the last arrival and recomputes.
        """

    @hookspec
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """Ask all, every iteration: how much prompt work may join? The tightest of each field holds.

        Part of the Budget, so no planner can ignore it. It may shrink the anchor's chunk, never below
        one block of tokens; when nothing runs, the first in order passes whatever gates say. Check:
        types, and no negative number.
        """

    @hookspec
    def reserve_blocks(self, sequence: SequenceView, view: EngineView) -> int | None:
        """Ask one, whenever a sequence may start: blocks to take at once, all or nothing.

        0 takes blocks on demand. Clamped to 0 .. blocks(prompt + max_tokens). Preemption drops a
        reservation. Source: Orca reserves max_tokens slots per request.
        """

    @hookspec
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget, view: EngineView
    ) -> IterationPlan | None:
        """Ask one, every iteration: how many tokens of which sequence to compute now.

        Both lists are in rank order; `waiting` holds what this iteration may look at. Take tokens with
        `budget.take(sequence, n, whole=False)` and answer `budget.plan()`. What must run is
        in the budget already; more of it may be taken, none dropped. A class with
        `whole_prompts = True` may take a prompt longer than the token limit whole, alone. Check: replayed
        through a fresh Budget. Source: iteration-level scheduling, Orca (OSDI '22).
        """

    @hookspec
    def on_adopt(self, view: EngineView) -> None:
        """Tell, at a swap or roll-back that puts this policy in force: it is asked from now on. Not at start."""

    @hookspec
    def on_retire(self, view: EngineView) -> None:
        """Tell, at a swap or roll-back that takes this policy out of force: it may come back later."""

    @hookspec
    def on_memory_shortage(self, event: MemoryShortage, view: EngineView) -> None:
        """Tell, when it happens: somebody asked for blocks and didn't get them."""

    @hookspec
    def on_iteration_end(self, record: IterationRecord, view: EngineView) -> None:
        """Tell, after every iteration: what was decided and done."""

    @hookspec
    def on_request_finished(self, request: Request, outcome: Outcome, view: EngineView) -> None:
        """Tell, when a request ends, rejections included: its usage, times and reason."""
