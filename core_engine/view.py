"""What a policy may see: live, read-only protocols over the engine's own objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from core_engine.cost import CostModel, Load
from core_engine.objectives import Objective
from core_engine.request import Kind, SamplingParams, Status


class SequenceView(Protocol):
    """One sequence as policies see it; `core_engine.request.Sequence` is what they get."""

    @property
    def id(self) -> int:
        """Grows with arrival."""

    @property
    def request_id(self) -> str:
        """Of the request it belongs to."""

    @property
    def sample_index(self) -> int:
        """Which of the request's `n` samples it is, from 0."""

    @property
    def tenant(self) -> str:
        """Whose request it is; `anonymous` without one."""

    @property
    def class_name(self) -> str:
        """Its class of service; `standard` without one."""

    @property
    def priority(self) -> int:
        """Lower is served earlier."""

    @property
    def weight(self) -> float:
        """Share of its tenant, relative to the others."""

    @property
    def kind(self) -> Kind:
        """What is asked for: tokens or an embedding."""

    @property
    def status(self) -> Status:
        """WAITING, RUNNING or FINISHED; WAITING owns no blocks."""

    @property
    def sampling(self) -> SamplingParams:
        """How its tokens are drawn."""

    @property
    def arrival_seconds(self) -> float:
        """When it arrived."""

    @property
    def arrival_iteration(self) -> int:
        """The iteration before which it arrived."""

    @property
    def start_iteration(self) -> int | None:
        """Of the last boarding."""

    @property
    def last_planned_iteration(self) -> int | None:
        """The last iteration that computed anything of it."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""

    @property
    def num_tokens(self) -> int:
        """Known: prompt and output."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose keys and values are in its blocks."""

    @property
    def num_pending_tokens(self) -> int:
        """1: decode; more: prefill."""

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""

    @property
    def predicted_output_tokens(self) -> int:
        """How many it is expected to generate."""

    @property
    def max_tokens(self) -> int:
        """How many it may generate."""

    @property
    def max_computed_tokens(self) -> int:
        """High-water mark."""

    @property
    def block_hashes(self) -> tuple[bytes, ...]:
        """Of the full prompt blocks."""

    @property
    def num_matched_tokens(self) -> int:
        """Prompt tokens found in shared blocks."""

    @property
    def block_table(self) -> Sequence[int]:
        """Physical blocks, in order of the tokens they hold."""

    @property
    def num_private_blocks(self) -> int:
        """Blocks that no other sequence holds."""

    @property
    def num_shared_blocks(self) -> int:
        """Blocks that others hold too."""

    @property
    def num_preemptions(self) -> int:
        """How often it was preempted."""

    @property
    def first_token_seconds(self) -> float | None:
        """When its first token was there."""

    @property
    def last_token_seconds(self) -> float | None:
        """When its newest token was there."""

    @property
    def in_flight(self) -> bool:
        """Whether the batch being executed holds it."""


class WaitingQueueView(Protocol):
    """The waiting sequences of one (class, tenant), in arrival order."""

    def __len__(self) -> int: ...

    @property
    def num_tokens(self) -> int:
        """Known tokens of all of them."""

    def window(self) -> Sequence[SequenceView]:
        """The first `waiting_window` of them: as many as an iteration may look at."""


class EngineView(Protocol):
    """The engine as policies see it, at the moment they are asked."""

    @property
    def now(self) -> float:
        """Seconds; the only time a policy knows."""

    @property
    def iteration(self) -> int:
        """Number of the iteration, from 1."""

    @property
    def block_size(self) -> int:
        """Tokens."""

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV pool."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody owns."""

    @property
    def num_cached_idle_blocks(self) -> int:
        """Free, but their content may be found again."""

    @property
    def num_reserved_blocks(self) -> int:
        """Owned beyond the tokens computed so far."""

    @property
    def token_limit(self) -> int:
        """Tokens per iteration."""

    @property
    def sequence_limit(self) -> int:
        """Sequences that may run at once."""

    @property
    def running(self) -> Sequence[SequenceView]:
        """In arrival order."""

    @property
    def decodes(self) -> Sequence[SequenceView]:
        """Those of the running with one token to catch up with, in arrival order."""

    @property
    def decode_load(self) -> Load:
        """Of computing that token of each."""

    @property
    def last_load(self) -> Load:
        """Of what the last iteration executed."""

    @property
    def last_decode_load(self) -> Load:
        """The decodes' part of it."""

    @property
    def waiting(self) -> Mapping[tuple[str, str], WaitingQueueView]:
        """By (class, tenant)."""

    @property
    def num_waiting(self) -> int:
        """Waiting sequences."""

    @property
    def num_waiting_tokens(self) -> int:
        """Known tokens of all waiting sequences."""

    @property
    def requests_per_second(self) -> float:
        """Measured: how fast waiting requests board."""

    @property
    def tokens_per_second(self) -> float:
        """Measured: how fast waiting tokens board."""

    @property
    def mean_output_tokens(self) -> float:
        """Of finished requests; 0 before the first."""

    @property
    def num_preemptions(self) -> int:
        """Since start."""

    @property
    def num_preempted_this_iteration(self) -> int:
        """Sequences preempted for memory before this iteration was planned."""

    @property
    def num_memory_shortages(self) -> int:
        """Since start."""

    @property
    def num_faults(self) -> int:
        """Of policies, since start."""

    @property
    def cost_model(self) -> CostModel:
        """Predicts seconds; gives exact computation; knows its own error."""

    @property
    def tenant_weights(self) -> Mapping[str, float]:
        """Weight of each tenant that is configured; any other has that of its requests."""

    @property
    def class_targets(self) -> Mapping[str, Objective]:
        """Objectives by class; empty where none are configured."""

    def get(self, sequence_id: int) -> SequenceView | None:
        """The running or waiting sequence of that id."""


def waiting_by_arrival(view: EngineView) -> Iterable[SequenceView]:
    """The windows of all queues, merged by arrival."""
    queues = view.waiting.values()
    if len(queues) == 1:
        return next(iter(queues)).window()
    return sorted((s for queue in queues for s in queue.window()), key=lambda s: s.id)
