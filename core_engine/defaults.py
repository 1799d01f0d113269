"""The built-in answer to every hook: policies like any other, asked last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import msgspec

from core_engine.budget import Budget
from core_engine.hookspecs import HOOKSPEC_VERSION, NoOptions, hookimpl
from core_engine.kv import BlockAllocator, FreeListAllocator, PrefixCachingAllocator
from core_engine.plan import Admit, IterationPlan, PrefillLimit, Reject, Shortage
from core_engine.request import Request
from core_engine.selection import NamedPolicy
from core_engine.view import EngineView, SequenceView

_RANGE = (HOOKSPEC_VERSION, HOOKSPEC_VERSION)


class Fcfs:
    """Ranks by arrival: first come, first served.

    Source: Orca (OSDI '22), which serves requests in the order they came. No options. Guarantees that
    no later arrival starts before an earlier one that could start.
    """

    Options = NoOptions
    hookspec_range = _RANGE

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def rank_sequences(self) -> tuple[Sequence[int], set[int]]:
        """An empty prefix: the rest follows by arrival."""
        return (), set()


class StallFree:
    """Plans every running decode first, then prompt chunks up to the budget: no decode waits for a prompt.

    Source: Sarathi-Serve (OSDI '24), stall-free batching with chunked prefills. No options. Running
    prompts are continued before new ones start; the first waiting sequence that gets nothing for want of
    seats, blocks or tokens ends the boarding, one that a gate holds is passed over.
    """

    Options = NoOptions
    hookspec_range = _RANGE

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget
    ) -> IterationPlan:
        """Decodes, then running prompts, then newcomers, each in rank order."""
        for sequence in budget.take_decodes(running):
            budget.take(sequence, sequence.num_pending_tokens)
        for place, sequence in enumerate(waiting, 1):
            if budget.tokens_left <= 0 or budget.sequences_left <= 0:
                break
            if budget.take(sequence, sequence.num_pending_tokens):
                continue
            if not budget.may_be_passed(sequence.id) or budget.holds_all(islice(waiting, place, None)):
                break
        return budget.plan()


class LastIn:
    """Preempts the last arrival first, and nobody for rank.

    Source: vLLM's recomputation of the lowest-priority, latest request. No options. Who came first
    keeps what was computed.
    """

    Options = NoOptions
    hookspec_range = _RANGE

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def choose_victims(self, shortage: Shortage, view: EngineView) -> Sequence[int]:
        """Running ids, latest arrival first; nobody for a shortage of rank."""
        if shortage.kind == "rank":
            return ()
        return [sequence.id for sequence in reversed(view.running)]


class PrefixCache:
    """Remembers the content of full prompt blocks, so that the next prompt that begins alike reuses them.

    Source: automatic prefix caching (vLLM, SGLang's RadixAttention). No options. Blocks are found by chained
    hashes salted per tenant, shared with reference counts, and evicted least recently used. Guarantees
    the same tokens as without, and never less room: an idle block counts as free. `paged` by name is without.
    """

    Options = NoOptions
    hookspec_range = _RANGE

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def create_block_allocator(self, num_blocks: int) -> BlockAllocator:
        """A free list that keeps released content findable."""
        return PrefixCachingAllocator(num_blocks)


class PagedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`headroom`: blocks that prompts leave free for each running sequence, 0 to 64."""

    headroom: Annotated[int, msgspec.Meta(ge=0, le=64)] = 1


class Paged:
    """Takes blocks on demand, and keeps a little free so that decodes seldom run out.

    Source: PagedAttention (vLLM, SOSP '23) for blocks on demand; the watermark is common practice. Prompts
    leave `headroom` free blocks for each running sequence. Nothing new starts in an iteration that
    preempted for memory, since what starts then is often the next victim.
    """

    Options = PagedOptions
    hookspec_range = _RANGE

    def __init__(self, options: PagedOptions, seed: int) -> None:
        self.headroom = options.headroom

    @hookimpl
    def create_block_allocator(self, num_blocks: int) -> BlockAllocator:
        """A free list."""
        return FreeListAllocator(num_blocks)

    @hookimpl
    def reserve_blocks(self) -> int:
        """Nothing: blocks come on demand."""
        return 0

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        """The headroom; and no start after a preemption for memory."""
        if view.num_preempted_this_iteration:
            return PrefillLimit(
                new_sequences=0,
                keep_free_blocks=self.headroom * len(view.running),
                reason="preempted for memory in this iteration",
            )
        if not self.headroom:
            return None
        return PrefillLimit(keep_free_blocks=self.headroom * len(view.running), reason="headroom for running decodes")


class QueueLimitOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`max_requests` waiting sequences (1 up), `max_tokens` waiting tokens (1 up), whichever is hit first."""

    max_requests: Annotated[int, msgspec.Meta(ge=1)] = 1024
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4_194_304


class QueueLimit:
    """Bounds what waits: more is refused with a reason and the time after which there should be room.

    Source: load shedding with an informed Retry-After, common practice. The time is what is over the limit
    divided by the measured rate at which waiting sequences board. A request that finds the
    queue empty is never refused.
    """

    Options = QueueLimitOptions
    hookspec_range = _RANGE

    def __init__(self, options: QueueLimitOptions, seed: int) -> None:
        self.options = options

    @hookimpl
    def admit_request(self, request: Request, view: EngineView) -> Admit | Reject:
        """Reject with `queue_full` when sequences or tokens would exceed their limit."""
        limit = self.options
        tokens = len(request.prompt_token_ids) * request.n
        over_requests = view.num_waiting + request.n - limit.max_requests
        over_tokens = view.num_waiting_tokens + tokens - limit.max_tokens
        if view.num_waiting == 0 or (over_requests <= 0 and over_tokens <= 0):
            return Admit()
        by_requests = _drain_seconds(over_requests, view.requests_per_second)
        by_tokens = _drain_seconds(over_tokens, view.tokens_per_second)
        return Reject(
            reason="queue_full",
            message=(
                f"{view.num_waiting} requests with {view.num_waiting_tokens} tokens wait already; the limits are "
                f"{limit.max_requests} requests and {limit.max_tokens} tokens"
            ),
            retry_after_seconds=max(by_requests, by_tokens),
        )


def _drain_seconds(excess: int, rate_per_second: float) -> float:
    """Seconds until `excess` have boarded, from 1 to 60; 1 where no rate is known yet."""
    if excess <= 0 or rate_per_second <= 0:
        return 1.0
    return float(min(60, max(1, math.ceil(excess / rate_per_second))))


def default_policies(seed: int) -> list[NamedPolicy]:
    """Fresh instances of all, with their default options; `prefix_cache` finds blocks before `paged` does."""
    nothing, paged, queue_limit = NoOptions(), PagedOptions(), QueueLimitOptions()
    return [
        NamedPolicy("fcfs", Fcfs(nothing, seed), "fcfs", nothing),
        NamedPolicy("stall_free", StallFree(nothing, seed), "stall_free", nothing),
        NamedPolicy("last_in", LastIn(nothing, seed), "last_in", nothing),
        NamedPolicy("prefix_cache", PrefixCache(nothing, seed), "prefix_cache", nothing),
        NamedPolicy("paged", Paged(paged, seed), "paged", paged),
        NamedPolicy("queue_limit", QueueLimit(queue_limit, seed), "queue_limit", queue_limit),
    ]
