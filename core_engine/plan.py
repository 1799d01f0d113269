"""What policies answer and are told: limits, plans, shortages, admissions, records."""

from __future__ import annotations

from typing import Literal

import msgspec


class Admit(msgspec.Struct, frozen=True):
    """Answer of `admit_request`: let it in; `limits` become response headers (`x-ratelimit-*`)."""

    limits: dict[str, str] = {}


class Reject(msgspec.Struct, frozen=True):
    """Answer of `admit_request`: refuse it for now.

    `reason` is a short stable identifier, `message` a sentence for the client. A later try is
    invited after `retry_after_seconds`, which must be more than 0.
    """

    reason: str
    retry_after_seconds: float
    message: str = ""
    limits: dict[str, str] = {}


class PrefillLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `limit_prefill`: how much prompt work may join this iteration. None is no opinion.

    `prompt_tokens` and `seconds` (predicted, marginal: with the prompts less without) bound the prompt
    chunks of all sequences; `new_sequences` how many may start; `keep_free_blocks` what prompts
    must leave free; `held` names waiting sequences that may not start, each with its reason.
    `reason` says why for the fields that are set. Of several answers the tightest of each field holds;
    in that combination `reasons` names policy and reason by field.
    """

    prompt_tokens: int | None = None
    seconds: float | None = None
    new_sequences: int | None = None
    keep_free_blocks: int | None = None
    held: dict[int, str] = {}
    reason: str = ""
    reasons: dict[str, str] = {}

    def stops(self, sequence_id: int) -> bool:
        """Whether it keeps a waiting sequence from starting, however much room there is."""
        return sequence_id in self.held or 0 in (self.new_sequences, self.prompt_tokens, self.seconds)


def tightest(limits: list[tuple[str, PrefillLimit]]) -> PrefillLimit:
    """Combine the answers of (policy, limit) pairs field by field; reasons become "policy: reason"."""
    chosen: dict[str, int | float] = {}
    reasons: dict[str, str] = {}
    held: dict[int, str] = {}
    for policy, limit in limits:
        because = f"{policy}: {limit.reason}" if limit.reason else policy
        for field in ("prompt_tokens", "seconds", "new_sequences", "keep_free_blocks"):
            value = getattr(limit, field)
            if value is None:
                continue
            tighter = max if field == "keep_free_blocks" else min
            if field not in chosen or tighter(value, chosen[field]) != chosen[field]:
                chosen[field] = value
                reasons[field] = because
        for sequence_id, reason in limit.held.items():
            held.setdefault(sequence_id, f"{policy}: {reason}")
    return PrefillLimit(**chosen, held=held, reasons=reasons)  # type: ignore[arg-type]


class IterationPlan(msgspec.Struct, frozen=True):
    """Answer of `plan_iteration`: how many tokens of which sequence (by id) to compute.

    `deliver=False` holds the results back until a later iteration delivers, no sequence runs, or
    something goes wrong. `idle_rows` are executed for nothing, within the token limit: how
    request-level batching pays for padding and for finished rows. `budget.plan()` makes a legal one.
    """

    num_tokens: dict[int, int]
    deliver: bool = True
    idle_rows: int = 0


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """Why `choose_victims` is asked.

    `memory`: running sequences lack `num_blocks` blocks for their next tokens. `rank`: the waiting
    sequences `waiting_ids`, which no gate holds, outrank a running one and lack `num_sequences`
    seats or `num_blocks` blocks.
    """

    kind: Literal["memory", "rank"]
    num_blocks: int = 0
    num_sequences: int = 0
    waiting_ids: tuple[int, ...] = ()


class MemoryShortage(msgspec.Struct, frozen=True, kw_only=True):
    """Told through `on_memory_shortage`: somebody asked for blocks and didn't get them.

    `cause`: `next_block` (a running sequence lacks its next block, somebody must give way),
    `take` (a planner's wish was clamped by free blocks), `refused` (the allocator granted fewer
    than asked although the pool had them).
    """

    iteration: int
    cause: Literal["next_block", "take", "refused"]
    sequence_id: int | None
    num_blocks: int  # how many were missing


class RecordedRow(msgspec.Struct, frozen=True, array_like=True):
    """One sequence's part in an iteration.

    `num_new_tokens` counts what was computed for the first time: what a preemption had thrown away
    is not progress.
    """

    sequence_id: int
    request_id: str
    sample_index: int
    tenant: str
    class_name: str
    num_computed_tokens: int  # before the iteration
    num_tokens: int
    num_new_tokens: int
    is_decode: bool


class IterationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one iteration decided and did; in virtual time equal, byte for byte, for equal seeds."""

    iteration: int
    started_seconds: float
    duration_seconds: float
    policy_version: int
    rows: tuple[RecordedRow, ...]
    prefill_tokens: int
    decode_tokens: int
    idle_rows: int
    started: tuple[int, ...]
    preempted: dict[int, str]  # sequence id -> cause
    finished: dict[int, str]  # sequence id -> finish reason
    held: dict[str, int]  # policy and reason -> sequences held back by it
    shortages: dict[str, int]  # cause -> how many
    num_running: int
    num_waiting: int
    num_free_blocks: int
    delivered: bool

    @property
    def num_tokens(self) -> dict[int, int]:
        """Tokens executed, by sequence id."""
        return {row.sequence_id: row.num_tokens for row in self.rows}
