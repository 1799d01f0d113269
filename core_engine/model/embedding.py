"""EmbeddingExecutor: an iteration is one forward pass over whole texts, padded, without keys and values kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModel

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.loading import model_name
from core_engine.model import facts
from core_engine.model.devices import choose_device, choose_dtype
from core_engine.model.pooling import Pooling, matryoshka_sizes, read_pooling

_LONGEST = 8192  # tokens, unless the operator says more: the activations of longer texts would surprise
_MAX_PADDED = 2  # times the tokens of a pass; what is shorter goes into another pass


def start_embedding(config: EngineConfig, directory: Path, report: Callable[[str, float], None]) -> EmbeddingExecutor:
    """Load and warm up. Raises ModelError."""
    clock = MonotonicClock()
    began = clock.now()
    pooling = read_pooling(directory)
    executor = EmbeddingExecutor(_load(config, directory), pooling, config)
    report("load", clock.now() - began)
    began = clock.now()
    executor.embed([[0] * min(16, executor.spec.max_model_len)])
    report("warm-up", clock.now() - began)
    return executor


def _load(config: EngineConfig, directory: Path) -> Any:
    device = choose_device(config)
    # Vectors outlive the server, in data bases: without another wish they are as exact as the weights.
    dtype = "auto" if config.dtype == "auto" else choose_dtype(config, device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    transformers.logging.disable_progress_bar()
    try:
        model = AutoModel.from_pretrained(
            directory, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:
        raise ModelError(
            f"{directory} can't be loaded by transformers {transformers.__version__}: {type(error).__name__}: {error}"
        ) from error
    return model.to(device).eval()


@dataclass(slots=True)
class _InFlight:
    embeddings: torch.Tensor  # in the order of the batch's rows


class EmbeddingExecutor:
    """Executor over any transformers encoder or decoder whose last hidden states are pooled.

    Blocks are a count of places without memory behind them, since nothing of a text is kept.
    """

    def __init__(self, model: Any, pooling: Pooling, config: EngineConfig) -> None:
        self._model = model
        self._pooling = pooling
        self._pad_token_id = getattr(model.config, "pad_token_id", None) or 0
        limits = [_longest(model, config), pooling.max_tokens, config.max_model_len or _LONGEST]
        max_model_len = min(limit for limit in limits if limit is not None)
        size = model.config.get_text_config().hidden_size
        self._spec = ModelSpec(
            name=model_name(config),
            architecture=type(model).__name__,
            dtype=str(model.dtype).removeprefix("torch."),
            device=torch.device(model.device).type,
            vocab_size=model.get_input_embeddings().weight.shape[0],
            max_model_len=max_model_len,
            num_blocks=config.sequence_limit * (1 + -(-max_model_len // config.block_size)),
            block_size=config.block_size,
            kv_bytes_per_token=0,
            kind="embed",
            embedding_size=size,
            matryoshka_sizes=matryoshka_sizes(model.config, size),
        )

    @property
    def spec(self) -> ModelSpec:
        """What is loaded."""
        return self._spec

    def submit(self, batch: Batch) -> _InFlight:
        """Embed the texts of the batch, each of which is in it as a whole."""
        ends = [0]
        for num_tokens in batch.num_query_tokens:
            ends.append(ends[-1] + num_tokens)
        return _InFlight(self.embed([batch.token_ids[start:end] for start, end in pairwise(ends)]))

    def collect(self, handle: object) -> BatchResult:
        """Wait for the pass and return its embeddings."""
        assert isinstance(handle, _InFlight)
        embeddings = handle.embeddings.cpu()
        finite = embeddings.isfinite().all(dim=1).tolist()
        return BatchResult(
            [],
            embeddings=[row.tobytes() for row in embeddings.numpy().astype("<f4")],
            failed_rows={row: "its embedding isn't finite" for row, good in enumerate(finite) if not good},
        )

    @torch.inference_mode()
    def embed(self, texts: list[list[int]]) -> torch.Tensor:
        """Embeddings `[texts, embedding_size]` in float32."""
        embeddings = torch.empty(len(texts), self._spec.embedding_size, device=self._model.device)
        for rows in _passes([len(text) for text in texts]):
            lengths = torch.tensor([len(texts[row]) for row in rows], device=self._model.device)
            longest = int(lengths.max())
            padded = [texts[row] + [self._pad_token_id] * (longest - len(texts[row])) for row in rows]
            input_ids = torch.tensor(padded, device=self._model.device)
            mask = torch.arange(longest, device=input_ids.device) < lengths[:, None]
            states = self._model(input_ids=input_ids, attention_mask=mask.long()).last_hidden_state
            embeddings[rows] = self._pooling(states, lengths)
        return embeddings


def _passes(lengths: list[int]) -> Iterator[list[int]]:
    """Rows that go through the model together: by length, so that padding at most doubles the work."""
    rows: list[int] = []
    num_tokens = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if rows and (len(rows) + 1) * lengths[row] > _MAX_PADDED * (num_tokens + lengths[row]):
            yield rows
            rows, num_tokens = [], 0
        rows.append(row)
        num_tokens += lengths[row]
    if rows:
        yield rows


def _longest(model: Any, config: EngineConfig) -> int:
    """Tokens by the model's own limit; of tables of positions as many as a text can use."""
    limit = facts.max_model_len(model.config, config)
    table: Any = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return limit if padding is None else min(limit, table.weight.shape[0] - padding - 1)
