"""An executor without a model: tokens by a hash, time by a table, and every batch verified."""

from __future__ import annotations

import math
import struct
import time
from pathlib import Path
from typing import Annotated

import msgspec

from core_engine.clock import Clock, MonotonicClock, VirtualClock
from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.lab.memory import SimulatedMemory
from core_engine.messages import TokenLogprobs
from core_engine.prompt_logprobs import PromptLogprobs
from core_engine.request import Sequence

_MASK = (1 << 64) - 1
_DEFAULT_KV_BYTES = 64 * 1024 * 1024
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class SimulatedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a simulated model costs and how its outputs end.

    An iteration takes `base_seconds + row_seconds * rows + attention_pair_seconds * pairs +
    kv_token_seconds * keys read`, in which rows include idle ones and pairs are queries times the
    keys each one sees; an empty batch takes `empty_seconds`. None ends earlier than `period_seconds`
    after the one before: a pace that doesn't depend on what the engine does in between. Each token ends
    its sequence with `eos_probability`, decided by the same hash as the token. Without `verify` batches
    are not checked, which takes longer the more tokens a sequence has.
    """

    base_seconds: Seconds = 0.012
    row_seconds: Seconds = 0.0005
    attention_pair_seconds: Seconds = 2e-8
    kv_token_seconds: Seconds = 1e-7
    empty_seconds: Seconds = 0.001
    period_seconds: Seconds = 0.0
    eos_probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    verify: bool = True

    def seconds(self, batch: Batch) -> float:
        """Duration of this batch's execution."""
        rows = batch.total_tokens + batch.idle_rows
        if rows == 0:
            return self.empty_seconds
        pairs = 0
        for queries, keys in zip(batch.num_query_tokens, batch.num_kv_tokens, strict=True):
            pairs += queries * (keys - queries) + queries * (queries + 1) // 2
        keys_read = sum(batch.num_kv_tokens)
        variable = self.attention_pair_seconds * pairs + self.kv_token_seconds * keys_read
        return self.base_seconds + self.row_seconds * rows + variable


class _Pass(msgspec.Struct):
    """A pass in flight."""

    result: BatchResult
    ready_seconds: float


class SimulatedExecutor:
    """Executor of `spec` in the time of `clock`: a VirtualClock is advanced, else the thread sleeps.

    The next token is a hash of seed, sample index, position and last token; greedy sequences leave
    seed and sample index out, so that equal greedy prompts get equal texts. No token is an end of
    sequence unless `SimulatedModel.eos_probability` says so. Of the sampling parameters only `temperature`
    (0 or not), `min_tokens`, `grammar`, `logprobs` and `prompt_logprobs` matter. Raises
    IntegrityError for a batch that a real model would get wrong.
    """

    def __init__(self, spec: ModelSpec, clock: Clock, model: SimulatedModel | None = None) -> None:
        if spec.vocab_size <= len(spec.eos_token_ids):
            raise ModelError(f"{spec.name}: a vocabulary of {spec.vocab_size} leaves no token but the ends of sequence")
        self._spec = spec
        self._clock = clock
        self._model = model or SimulatedModel()
        self._memory = SimulatedMemory(spec.num_blocks, spec.block_size)
        self._due_seconds = 0.0  # when the last pass was to end

    @property
    def spec(self) -> ModelSpec:
        """What is simulated."""
        return self._spec

    def submit(self, batch: Batch) -> object:
        """Verify the batch and start its time."""
        if self._model.verify:
            self._memory.execute(batch)
        started_seconds = self._clock.now()
        self._due_seconds = max(
            started_seconds + self._model.seconds(batch), self._due_seconds + self._model.period_seconds
        )
        return _Pass(result=self._result(batch), ready_seconds=self._due_seconds)

    def collect(self, handle: object) -> BatchResult:
        """Let the pass's time go by."""
        assert isinstance(handle, _Pass)
        remaining = handle.ready_seconds - self._clock.now()
        if remaining > 0:
            if isinstance(self._clock, VirtualClock):
                self._clock.advance(remaining)
            else:
                time.sleep(remaining)
        return handle.result

    def _result(self, batch: Batch) -> BatchResult:
        if self._spec.kind == "embed":
            return BatchResult([], embeddings=[self._embedding(batch.sequences[row]) for row in batch.sample_rows])
        token_ids = [self._next_token(batch.sequences[row]) for row in batch.sample_rows]
        return BatchResult(token_ids, self._logprobs(batch, token_ids), prompt_logprobs=self._prompt_logprobs(batch))

    def _embedding(self, sequence: Sequence) -> bytes:
        """A vector of length 1 by a hash of all tokens."""
        draws = [_hash(*sequence.token_ids, place) / 2**63 - 1 for place in range(self._spec.embedding_size)]
        length = math.hypot(*draws)
        return struct.pack(f"<{len(draws)}f", *(draw / length for draw in draws))

    def _next_token(self, sequence: Sequence) -> int:
        greedy = sequence.sampling.temperature == 0
        draw = _hash(
            0 if greedy else sequence.seed,
            0 if greedy else sequence.sample_index,
            sequence.num_tokens,
            sequence.token_ids[-1],
        )
        if sequence.matcher is not None:
            allowed = sequence.matcher.allowed_token_ids()
            return allowed[draw % len(allowed)]
        ends = self._spec.eos_token_ids
        if ends and sequence.num_output_tokens >= sequence.sampling.min_tokens:
            if (draw >> 11) / (1 << 53) < self._model.eos_probability:
                return ends[0]
        token_id = draw % self._spec.vocab_size
        while token_id in ends:
            token_id = (token_id + 1) % self._spec.vocab_size
        return token_id

    def _logprobs(self, batch: Batch, token_ids: list[int]) -> list[TokenLogprobs | None]:
        wishes = [batch.sequences[row].sampling.logprobs for row in batch.sample_rows]
        if all(rivals is None for rivals in wishes):
            return []
        size = self._spec.vocab_size
        return [
            None
            if rivals is None
            else TokenLogprobs(-0.5, [((token_id + i) % size, -0.5 - i) for i in range(min(rivals, size))])
            for rivals, token_id in zip(wishes, token_ids, strict=True)
        ]

    def _prompt_logprobs(self, batch: Batch) -> dict[int, list[PromptLogprobs]]:
        """Each follows from the token alone, which is always of the third rank."""
        size = self._spec.vocab_size
        told = {}
        for row, positions in batch.scored.items():
            sequence = batch.sequences[row]
            rivals = min(sequence.sampling.prompt_logprobs or 0, size)
            tokens = sequence.token_ids[positions.start : positions.stop]
            scores = [(-1.0 - t / size, 3, [((t + i) % size, -0.5 * i) for i in range(1, rivals + 1)]) for t in tokens]
            told[row] = [PromptLogprobs.pack(positions.start, scores)]
        return told


class _Description(msgspec.Struct, frozen=True):
    """What is read of a model's config.json."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    model_type: str = "simulated"
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    eos_token_id: int | list[int] | None = None
    matryoshka_dimensions: tuple[int, ...] = ()
    simulated: SimulatedModel = SimulatedModel()


def load_simulated(config: EngineConfig, directory: Path, clock: Clock | None = None) -> SimulatedExecutor:
    """The executor for `config.executor == "simulated"`, shaped like the model in `directory`.

    Reads its `config.json` only: vocabulary, layers, heads, context length, ends of sequence, and
    `simulated`, an object with fields of SimulatedModel (all times 0: no sleep at all). Raises
    ModelError where the file is missing or lacks what is needed.
    """
    path = directory / "config.json"
    try:
        description = msgspec.json.decode(path.read_bytes(), type=_Description)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelError(f"{path} does not describe a model that can be simulated: {error}") from error
    spec = _spec(config, config.served_model_name or directory.name, description)
    return SimulatedExecutor(spec, clock or MonotonicClock(), description.simulated)


def _spec(config: EngineConfig, name: str, description: _Description) -> ModelSpec:
    heads = description.num_key_value_heads or description.num_attention_heads
    head_dim = description.head_dim or description.hidden_size // description.num_attention_heads
    bytes_per_value = 2 if config.dtype in ("bfloat16", "float16") else 4
    bytes_per_token = 2 * description.num_hidden_layers * heads * head_dim * bytes_per_value
    num_blocks = (config.kv_memory_bytes or _DEFAULT_KV_BYTES) // (bytes_per_token * config.block_size)
    if num_blocks == 0:
        raise ModelError(f"{config.kv_memory_bytes} bytes of KV memory hold no block of {config.block_size} tokens")
    ends = description.eos_token_id
    return ModelSpec(
        name=name,
        architecture=description.model_type,
        dtype="float32" if config.dtype == "auto" else config.dtype,
        device="simulated",
        vocab_size=description.vocab_size,
        max_model_len=min(description.max_position_embeddings, config.max_model_len or 1 << 60),
        num_blocks=num_blocks,
        block_size=config.block_size,
        kv_bytes_per_token=bytes_per_token,
        eos_token_ids=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
        kind=config.task,
        embedding_size=description.hidden_size if config.task == "embed" else 0,
        matryoshka_sizes=description.matryoshka_dimensions if config.task == "embed" else (),
    )


def _hash(*values: int) -> int:
    """64 well mixed bits of these numbers (the finaliser of splitmix64, once for each)."""
    mixed = 0
    for value in values:
        mixed = (mixed + value + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return mixed
