"""The seam to the model: a Batch goes in, sampled tokens come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from core_engine.messages import TokenLogprobs
from core_engine.prompt_logprobs import PromptLogprobs
from core_engine.request import Kind, Sequence


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine must know of a loaded model and of the memory it was given."""

    name: str
    architecture: str
    dtype: str
    device: str
    vocab_size: int
    max_model_len: int  # the model's own limit, or the configured one, whichever is less
    num_blocks: int
    block_size: int
    kv_bytes_per_token: int
    eos_token_ids: tuple[int, ...] = ()
    row_flops: float = 1.0  # of all linear layers for one token; weights of the exact compute share
    attention_flops: float = 0.0  # for one query against one key, over all layers
    weight_bytes: int = 0  # of the model, as they are held in memory
    max_lone_prompt_tokens: int | None = None  # longest prompt that may run whole; None: no bound
    kind: Kind = "generate"  # of the requests that it serves
    embedding_size: int = 0
    matryoshka_sizes: tuple[int, ...] = ()  # to which an embedding may be cut


@dataclass(slots=True)
class Batch:
    """A plan bound to memory, flattened to `[1, total_tokens]`.

    Row i is `sequences[i]` with its next `num_query_tokens[i]` tokens; after the pass it has
    `num_kv_tokens[i]` keys, the last `num_query_tokens[i]` of which this pass writes. The flat lists
    hold the rows one after another. A slot is `block * block_size + offset`. Rows listed in
    `sample_rows` have caught up with their known tokens and get a new one, sampled from the logits
    of their last position. `scored` gives by row the positions of prompt tokens whose log-probabilities are
    wanted, which the logits of the positions before them tell. `idle_rows` extra tokens are executed for
    nothing: any token id, no KV read or written, nothing sampled.
    """

    iteration: int
    block_size: int
    sequences: list[Sequence] = field(default_factory=list)
    num_query_tokens: list[int] = field(default_factory=list)
    num_kv_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    slot_mapping: list[int] = field(default_factory=list)
    sample_rows: list[int] = field(default_factory=list)
    scored: dict[int, range] = field(default_factory=dict)
    block_copies: list[tuple[int, int]] = field(default_factory=list)  # (source, destination), done first
    idle_rows: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens of all rows, idle ones left out."""
        return len(self.token_ids)


@dataclass(slots=True)
class BatchResult:
    """What an execution gave, in the order of `Batch.sample_rows`; `prompt_logprobs` by row, in order of position.

    A row in `failed_rows` (index into `Batch.sequences` -> reason, for logits that aren't finite,
    say) has no valid token; its entry in `token_ids` is -1.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)  # empty: nobody asked
    failed_rows: dict[int, str] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[PromptLogprobs]] = field(default_factory=dict)
    embeddings: list[bytes] = field(default_factory=list)  # of an embedding model: little-endian float32


class Executor(Protocol):
    """Runs batches on a model. Called on the engine thread only, one batch in flight for now."""

    @property
    def spec(self) -> ModelSpec:
        """What is loaded."""
        ...

    def submit(self, batch: Batch) -> object:
        """Start one forward pass and return a handle for `collect`; must not wait for the device."""
        ...

    def collect(self, handle: object) -> BatchResult:
        """Wait for a pass and return its sampled tokens. An exception fails the batch's requests."""
        ...
