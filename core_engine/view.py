"""What a policy may see: live, read-only protocols over the engine's own objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from core_engine.cost import CostModel
from core_engine.request import Kind, SamplingParams, Status


class SequenceView(Protocol):
    """One sequence as policies see it; `core_engine.request.Sequence` is what they get."""

    @property
    def id(self) -> int: ...  # grows with arrival
    @property
    def request_id(self) -> str: ...
    @property
    def sample_index(self) -> int: ...
    @property
    def tenant(self) -> str: ...
    @property
    def class_name(self) -> str: ...
    @property
    def priority(self) -> int: ...  # lower is served earlier
    @property
    def weight(self) -> float: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def status(self) -> Status: ...
    @property
    def sampling(self) -> SamplingParams: ...
    @property
    def arrival_seconds(self) -> float: ...
    @property
    def arrival_iteration(self) -> int: ...
    @property
    def start_iteration(self) -> int | None: ...  # of the last boarding
    @property
    def last_planned_iteration(self) -> int | None: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...  # known: prompt and output
    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def num_pending_tokens(self) -> int: ...  # 1: decode; more: prefill
    @property
    def num_output_tokens(self) -> int: ...
    @property
    def predicted_output_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def max_computed_tokens(self) -> int: ...  # high-water mark
    @property
    def block_hashes(self) -> tuple[bytes, ...]: ...  # of the full prompt blocks
    @property
    def num_matched_tokens(self) -> int: ...  # prompt tokens found in shared blocks
    @property
    def num_private_blocks(self) -> int: ...
    @property
    def num_shared_blocks(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def first_token_seconds(self) -> float | None: ...
    @property
    def last_token_seconds(self) -> float | None: ...
    @property
    def in_flight(self) -> bool: ...


class WaitingQueueView(Protocol):
    """The waiting sequences of one (class, tenant), in arrival order."""

    def __len__(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...  # known tokens of all of them

    def window(self) -> Sequence[SequenceView]:
        """The first `waiting_window` of them: as many as an iteration may look at."""
        ...


class EngineView(Protocol):
    """The engine as policies see it, at the moment they are asked."""

    @property
    def now(self) -> float: ...  # seconds; the only time a policy knows
    @property
    def iteration(self) -> int: ...
    @property
    def block_size(self) -> int: ...  # tokens
    @property
    def num_blocks(self) -> int: ...
    @property
    def num_free_blocks(self) -> int: ...
    @property
    def num_cached_idle_blocks(self) -> int: ...  # free, but their content may be found again
    @property
    def num_reserved_blocks(self) -> int: ...  # owned beyond the tokens computed so far
    @property
    def token_limit(self) -> int: ...  # tokens per iteration
    @property
    def sequence_limit(self) -> int: ...
    @property
    def running(self) -> Sequence[SequenceView]: ...  # in arrival order
    @property
    def waiting(self) -> Mapping[tuple[str, str], WaitingQueueView]: ...  # by (class, tenant)
    @property
    def num_waiting(self) -> int: ...
    @property
    def num_waiting_tokens(self) -> int: ...
    @property
    def requests_per_second(self) -> float: ...  # measured: how fast waiting requests board
    @property
    def tokens_per_second(self) -> float: ...  # measured: how fast waiting tokens board
    @property
    def mean_output_tokens(self) -> float: ...  # of finished requests; 0 before the first
    @property
    def num_preemptions(self) -> int: ...  # since start
    @property
    def num_preempted_this_iteration(self) -> int: ...
    @property
    def num_memory_shortages(self) -> int: ...  # since start
    @property
    def num_faults(self) -> int: ...  # of policies, since start
    @property
    def cost_model(self) -> CostModel: ...
    @property
    def tenant_weights(self) -> Mapping[str, float]: ...
    @property
    def class_targets(self) -> Mapping[str, Any]: ...  # objectives by class; empty where none are configured

    def get(self, sequence_id: int) -> SequenceView | None:
        """The running or waiting sequence of that id."""
        ...


def waiting_by_arrival(view: EngineView) -> Iterable[SequenceView]:
    """The windows of all queues, merged by arrival."""
    queues = view.waiting.values()
    if len(queues) == 1:
        return next(iter(queues)).window()
    return sorted((s for queue in queues for s in queue.window()), key=lambda s: s.id)
