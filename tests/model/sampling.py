"""Sequences in any state, for tests of the sampler."""

from __future__ import annotations

from typing import Any

import torch

from core_engine.driver import HandDriver
from core_engine.executor import ModelSpec
from core_engine.model.grammar_masks import RowMasks
from core_engine.model.sampler import Sampler
from core_engine.request import SamplingParams, Sequence

EOS = 2


def sequence(
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    *,
    seed: int = 0,
    sample_index: int = 0,
    **sampling: Any,
) -> Sequence:
    """A sequence that has said `output`; greedy unless a temperature is given."""
    params = SamplingParams(**{"temperature": 0.0, **sampling})
    spec = ModelSpec(
        name="", architecture="", dtype="", device="", vocab_size=1, max_model_len=1, num_blocks=1, block_size=8,
        kv_bytes_per_token=1,
    )  # fmt: skip
    made = HandDriver(spec).sequence(prompt or [1], params, seed=seed, sample_index=sample_index)
    for token in output or []:
        made.append_token(token)
    return made


def sample(
    logits: list[list[float]] | torch.Tensor, sequences: list[Sequence], allowed: dict[int, set[int]] | None = None
) -> list[int]:
    """The token of each row, -1 where there is none; `allowed` is what the grammars of some rows allow."""
    masks = None
    if allowed is not None:
        words = [word(allowed[row]) if row in allowed else -1 for row in range(len(sequences))]
        masks = RowMasks(list(allowed), torch.tensor(words, dtype=torch.int32).unsqueeze(1))
    return Sampler((EOS,)).sample(torch.as_tensor(logits), sequences, masks).fetch()[0]


def word(token_ids: set[int]) -> int:
    """A mask of tokens below 31."""
    return sum(1 << token_id for token_id in token_ids)


def draws(logits: list[float], count: int, **sampling: Any) -> list[int]:
    """Draws at many positions of sequences with different seeds, in one batch."""
    sequences = [sequence([1] * (1 + i % 7), seed=i, **{"temperature": 1.0, **sampling}) for i in range(count)]
    return sample(torch.tensor(logits).expand(count, -1), sequences)
