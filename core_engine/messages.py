"""What crosses the boundary between engine and gateway, in either direction.

The same structs are used in one process, without a socket. Every message carries the epoch of the
engine's incarnation it belongs to; a message of another epoch is dropped.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from core_engine.config import EngineConfig
from core_engine.prompt_logprobs import PromptLogprobs
from core_engine.request import FinishReason, Kind, Request


class Submit(msgspec.Struct, tag="submit", frozen=True):
    """Run this request; answered by Accepted or Rejected at the next iteration boundary."""

    epoch: int
    request: Request


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Nobody wants this request any more; its blocks are free when the iteration in flight ends."""

    epoch: int
    request_id: str


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True):
    """End the process after the iteration in flight."""

    epoch: int


class PolicyEvent(msgspec.Struct, tag="event", frozen=True, kw_only=True):
    """A change of the policies in force; `policies` are the specifications in force after it."""

    kind: Literal["adopted", "confirmed", "rolled_back", "retired"]
    version: int
    iteration: int
    policies: tuple[str, ...]
    reason: str = ""


class PolicyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in force; totals since start."""

    name: str
    spec: str
    options: dict[str, Any]
    is_default: bool
    hooks: list[str]
    faults: int
    decision_seconds: float
    promised_wait_iterations: int | None = None


class SwapPolicies(msgspec.Struct, tag="swap_policies", frozen=True):
    """Put these specifications in force, all of them; answered by PolicyEvent."""

    policies: tuple[str, ...]


class DescribePolicies(msgspec.Struct, tag="describe_policies", frozen=True):
    """Ask which policies are in force; answered by PolicyReport."""


class DescribeRequest(msgspec.Struct, tag="describe_request", frozen=True):
    """Ask what has become of a request; answered by RequestReport, or by nothing where it isn't known."""

    request_id: str


class Query(msgspec.Struct, tag="query", frozen=True):
    """A question of the operator; answered, between two iterations, by an Answer with its number."""

    epoch: int
    number: int
    question: SwapPolicies | DescribePolicies | DescribeRequest


ToEngine = Submit | Cancel | Query | Shutdown


class PolicyReport(msgspec.Struct, tag="policies", frozen=True, kw_only=True):
    """What is in force, since when, and what changed before."""

    version: int
    on_probation: bool
    policies: list[PolicyInfo]
    history: list[PolicyEvent]


class SequenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where one sequence of a request stands."""

    sample_index: int
    state: Literal["waiting", "running", "finished"]
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    num_preemptions: int
    place: int | None = None  # in its queue, from 1; while it waits
    held_by: str | None = None  # policy and reason that held it back in the last iteration
    predicted_start_seconds: float | None = None  # from now, at the measured rate of boarding


class RequestReport(msgspec.Struct, tag="request", frozen=True, kw_only=True):
    """Why a request is where it is."""

    request_id: str
    tenant: str
    class_name: str
    waited_iterations: int
    waited_seconds: float
    sequences: list[SequenceReport]


class Answer(msgspec.Struct, tag="answer", frozen=True, kw_only=True):
    """The answer to a Query: a result, or an error; `restart_needed` tells a swap that no retry can help."""

    epoch: int
    number: int
    result: PolicyEvent | PolicyReport | RequestReport | None = None
    error: str | None = None
    restart_needed: bool = False


class TokenLogprobs(msgspec.Struct, array_like=True, frozen=True):
    """Log-probability of one sampled token and its rivals, best first: (token id, log-probability).

    They are of the model's own distribution: after logit_bias, penalties and masks they would not
    compare between requests, so they are taken before, from the raw logits.
    """

    logprob: float
    top: list[tuple[int, float]]


class FirstTokenTiming(msgspec.Struct, array_like=True, frozen=True):
    """Arrival to first boarding, and boarding to first token, of one sequence."""

    queue_seconds: float
    prefill_seconds: float


class SequenceOutput(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """New tokens of one sequence; `finish_reason` is set on the last one of the sequence.

    `stop_token_id` says which token ended it, where one did; that token is the last of `token_ids`.
    `num_cached_tokens` of the prompt were found computed. `prompt_logprobs` come with the first sample of a request
    that asked for them, in order of position, each once. `timing` comes with the first token.
    """

    request_id: str
    sample_index: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    prompt_logprobs: list[PromptLogprobs] = []
    timing: FirstTokenTiming | None = None
    embedding: bytes | None = None  # instead of tokens, of a request to embed: little-endian float32


class Accepted(msgspec.Struct, array_like=True, frozen=True):
    """The request is queued; `max_tokens` is the bound that holds, `limits` become headers."""

    request_id: str
    max_tokens: int
    limits: dict[str, str] = {}


class Rejected(msgspec.Struct, array_like=True, frozen=True):
    """The request was not taken. Without `retry_after_seconds` a later try can't help."""

    request_id: str
    reason: str  # stable identifier: queue_full, context_length_exceeded, ...
    message: str
    retry_after_seconds: float | None = None
    limits: dict[str, str] = {}


class Setback(msgspec.Struct, array_like=True, frozen=True):
    """A preemption of one sequence, or that somebody else, or for another reason, holds it back now.

    `cause` of a preemption is what was short, of a hold "policy: reason".
    """

    seconds: float  # after the arrival
    kind: Literal["preempted", "held"]
    cause: str
    sample_index: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended: usage and durations, summed or spanned over its sequences.

    `queue_seconds`: arrival to first boarding; `prefill_seconds`: boarding to first token;
    `decode_seconds`: first to last token. None where it never came to that. `setbacks` are the first ones, in order.
    """

    request_id: str
    finish_reason: FinishReason
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    queue_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    total_seconds: float = 0.0
    reason: str | None = None  # of a rejection
    block_hashes: tuple[bytes, ...] = ()
    setbacks: tuple[Setback, ...] = ()


class IterationStats(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one iteration for metrics; counters are increments since the last message.

    `idle_gap_seconds`: from the end of the previous execution to the start of this one, while
    there was work.
    """

    iteration: int
    duration_seconds: float = 0.0  # of the execution alone
    idle_gap_seconds: float | None = None
    prefill_tokens: int = 0
    decode_tokens: int = 0
    idle_rows: int = 0
    prefill_compute_share: float = 0.0  # exact: share of the prompts in the iteration's computation
    prefill_time_share: float = 0.0  # by the cost model
    sequences_running: int = 0
    sequences_waiting: int = 0
    waiting_tokens: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached_idle: int = 0
    waste_tokens: int = 0  # slots inside owned blocks that hold no token
    starts: int = 0
    held: dict[str, int] = {}  # "policy: reason" -> sequences held back
    longest_wait_iterations: dict[str, int] = {}  # by class, of those that wait
    served_tokens: dict[str, int] = {}  # by tenant, computed for the first time
    preemptions: int = 0
    memory_shortages: dict[str, int] = {}  # by cause
    rescues: dict[str, int] = {}  # by rule of the engine that had to step in: anchor, gates, overdue, held
    policy_faults: dict[str, int] = {}  # by policy
    decision_seconds: dict[str, float] = {}  # by "hook/policy"
    attainment: dict[str, tuple[int, int]] = {}  # by class: finished requests that met their objective, and all
    cost_model_error: float = 0.0  # mean relative error on iterations not yet learnt


class IterationOutput(msgspec.Struct, tag="iteration", frozen=True, kw_only=True):
    """Everything an iteration has to tell, in one message."""

    epoch: int
    policy_version: int
    accepted: list[Accepted] = []
    rejected: list[Rejected] = []
    outputs: list[SequenceOutput] = []
    finished: list[Outcome] = []
    policy_events: list[PolicyEvent] = []
    stats: IterationStats | None = None


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine serves and within which limits."""

    model: str  # the name that clients use
    architecture: str
    dtype: str
    device: str
    vocab_size: int
    max_model_len: int  # tokens of prompt and output that model and KV pool both allow
    block_size: int
    num_blocks: int
    kv_bytes_per_token: int
    eos_token_ids: tuple[int, ...]
    kind: Kind = "generate"  # of the requests that it serves
    embedding_size: int = 0
    matryoshka_sizes: tuple[int, ...] = ()  # to which an embedding may be cut
    policies: dict[str, list[str]] = {}  # by hook, in the order they are asked
    policy_version: int = 1
    phases: dict[str, float] = {}  # seconds of each phase of the start
    config: EngineConfig = EngineConfig()


class ModelPrepared(msgspec.Struct, tag="prepared", frozen=True):
    """The model's files are in place; tokenizer and chat template can be read from `directory`."""

    epoch: int
    directory: str


class EngineReady(msgspec.Struct, tag="ready", frozen=True):
    """The engine has loaded, probed and warmed up, and takes requests."""

    epoch: int
    info: EngineInfo


class EngineFailed(msgspec.Struct, tag="failed", frozen=True):
    """The engine can't serve and trying again would not help; `message` is for a person."""

    epoch: int
    message: str


FromEngine = IterationOutput | Answer | ModelPrepared | EngineReady | EngineFailed
