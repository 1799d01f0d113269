"""Request (what the client asked, immutable) and Sequence (one growing list of tokens of it)."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from core_engine.grammars.grammar import Grammar
from core_engine.grammars.matcher import Matcher

Kind = Literal["generate", "embed"]
FinishReason = Literal["stop", "length", "cancelled", "error", "rejected"]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to draw tokens; already validated by whoever built it.

    Greedy where `temperature` is 0. Neutral values (`top_k=0`, `top_p=1`, penalties 0 or 1) are off.
    """

    max_tokens: int | None = None  # None: the operator's default, else what model and pool leave; 0: only the prompt
    min_tokens: int = 0  # no end of sequence and no stop token before that many output tokens
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0  # counts output tokens only, as OpenAI does
    frequency_penalty: float = 0.0  # likewise
    repetition_penalty: float = 1.0  # counts the prompt too
    logit_bias: dict[int, float] = {}
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()  # sequences that must never be completed
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # rivals to report beside each sampled token; 0 is on, None is off
    prompt_logprobs: int | None = None  # likewise beside each token of the prompt
    seed: int | None = None
    grammar: Grammar | None = None  # it wins over min_tokens, ignore_eos and biases: whoever is done ends


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asked for, as the engine needs it.

    `priority`: lower is served earlier. `n` makes that many sequences. `cache_salt` keeps shared
    blocks apart.
    """

    id: str
    model: str
    prompt_token_ids: list[int]
    sampling: SamplingParams = SamplingParams()
    kind: Kind = "generate"
    n: int = 1
    tenant: str = "anonymous"
    class_name: str = "standard"
    priority: int = 0
    weight: float = 1.0
    cache_salt: str = ""


class Status(enum.Enum):
    """Where a sequence is; WAITING owns no blocks."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """One growing token list of a request.

    There are no phases: a sequence has known tokens (`token_ids`) and computed ones
    (`num_computed_tokens`), and the second catch up with the first. More than one token to
    catch up with is a prefill, be it a prompt or the recomputation after a preemption; exactly
    one is a decode.
    """

    __slots__ = (
        "arrival_iteration", "arrival_seconds", "block_hashes", "block_table", "class_name", "finish_reason",
        "first_token_seconds", "id", "in_flight", "kind", "last_hold", "last_planned_iteration", "last_token_seconds",
        "matcher", "max_computed_tokens", "max_tokens", "num_cached_tokens", "num_computed_tokens",
        "num_matched_tokens", "num_preemptions", "num_prompt_tokens", "num_shared_blocks", "num_tokens",
        "num_tokens_that_may_end", "predicted_output_tokens", "priority", "request", "request_id", "sample_index",
        "sampling", "scores_prompt", "seed", "start_iteration", "start_seconds", "status", "tenant", "token_ids",
        "weight",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        request: Request,
        sample_index: int,
        *,
        max_tokens: int,
        seed: int,
        arrival_seconds: float,
        arrival_iteration: int,
        predicted_output_tokens: int = 1,
        block_hashes: tuple[bytes, ...] = (),
        matcher: Matcher | None = None,
    ) -> None:
        self.id = id  # grows with arrival: the order of ids is the order of arrival
        self.request = request
        self.request_id = request.id
        self.sample_index = sample_index
        self.sampling = request.sampling
        self.kind = request.kind
        self.tenant = request.tenant
        self.class_name = request.class_name
        self.priority = request.priority
        self.weight = request.weight
        self.seed = seed
        self.scores_prompt = sample_index == 0 and request.sampling.prompt_logprobs is not None
        self.matcher = matcher  # where the output stands in its grammar; it has seen every output token

        self.token_ids = list(request.prompt_token_ids)
        self.num_tokens = len(self.token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.max_computed_tokens = 0  # high-water mark: net progress, whatever preemption threw away
        self.max_tokens = max_tokens
        # With fewer known tokens than that, only the model's own end of sequence can end it.
        may_stop = matcher is not None or bool(request.sampling.stop_token_ids)
        self.num_tokens_that_may_end = 0 if may_stop else self.num_prompt_tokens + max_tokens
        self.predicted_output_tokens = predicted_output_tokens
        self.block_table: list[int] = []
        self.block_hashes = block_hashes
        self.num_matched_tokens = 0  # found computed at the last start
        self.num_cached_tokens = 0  # found computed at the first start: what the client is told
        self.num_shared_blocks = 0

        self.status = Status.WAITING
        self.finish_reason: FinishReason | None = None
        self.in_flight = False
        self.num_preemptions = 0
        self.last_hold = ""  # policy and reason that held it back last
        self.arrival_seconds = arrival_seconds
        self.arrival_iteration = arrival_iteration
        self.start_seconds: float | None = None
        self.start_iteration: int | None = None
        self.last_planned_iteration: int | None = None
        self.first_token_seconds: float | None = None
        self.last_token_seconds: float | None = None

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Known tokens not computed yet: 1 is a decode, more is a prefill."""
        return self.num_tokens - self.num_computed_tokens

    @property
    def num_private_blocks(self) -> int:
        """Blocks that no other sequence holds."""
        return len(self.block_table) - self.num_shared_blocks

    def append_token(self, token_id: int) -> None:
        """Add one generated token to the known ones."""
        self.token_ids.append(token_id)
        self.num_tokens += 1

    def __repr__(self) -> str:
        return (
            f"Sequence({self.id}, {self.request_id}#{self.sample_index}, {self.status.value}, "
            f"{self.num_computed_tokens}/{self.num_tokens} tokens, {len(self.block_table)} blocks)"
        )
