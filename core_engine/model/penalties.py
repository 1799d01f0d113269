"""Logits adjusted by what a sequence has said so far: penalties and biases."""

from __future__ import annotations

import torch

from core_engine.model.layout import upload, upload_lists
from core_engine.request import Sequence


def adjust(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    """Apply penalties and `logit_bias` in place to float32 logits `[rows, vocab_size]`.

    Repetition counts prompt and output, and divides what is positive, multiplies what is negative
    (Keskar et al., CTRL); presence and frequency count output only, as OpenAI defines them.
    """
    _repetition(logits, sequences)
    _presence_and_frequency(logits, sequences)
    _bias(logits, sequences)


def is_neutral(sequence: Sequence) -> bool:
    """Whether `adjust` would leave the sequence's logits alone."""
    s = sequence.sampling
    return s.repetition_penalty == 1.0 and s.presence_penalty == 0.0 and s.frequency_penalty == 0.0 and not s.logit_bias


def _repetition(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    known = [
        (row, set(sequence.token_ids), sequence.sampling.repetition_penalty)
        for row, sequence in enumerate(sequences)
        if sequence.sampling.repetition_penalty != 1.0
    ]
    if not known:
        return
    where = _elements([(row, tokens) for row, tokens, _ in known], logits)
    penalty = _repeated([(value, len(tokens)) for _, tokens, value in known], logits)
    flat = logits.view(-1)
    chosen = flat.index_select(0, where)
    flat.index_copy_(0, where, torch.where(chosen > 0, chosen / penalty, chosen * penalty))


def _presence_and_frequency(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    rows, amounts = [], []
    for row, sequence in enumerate(sequences):
        sampling = sequence.sampling
        if sampling.presence_penalty == 0.0 and sampling.frequency_penalty == 0.0:
            continue
        counts: dict[int, int] = {}
        for token in sequence.token_ids[sequence.num_prompt_tokens :]:
            counts[token] = counts.get(token, 0) + 1
        rows.append((row, counts.keys()))
        amounts += [-sampling.presence_penalty - sampling.frequency_penalty * count for count in counts.values()]
    _add(logits, rows, amounts)


def _bias(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    biases = [(row, s.sampling.logit_bias) for row, s in enumerate(sequences) if s.sampling.logit_bias]
    _add(
        logits,
        [(row, bias.keys()) for row, bias in biases],
        [amount for _, bias in biases for amount in bias.values()],
    )


def _add(logits: torch.Tensor, rows: list, amounts: list[float]) -> None:
    """Add the amounts to the listed tokens, each of which occurs once in its row."""
    if amounts:
        where = _elements(rows, logits)
        values = upload(torch.tensor(amounts, dtype=logits.dtype), logits.device)
        logits.view(-1).index_add_(0, where, values)


def _elements(rows: list, logits: torch.Tensor) -> torch.Tensor:
    """Flat indices of the (row, tokens) listed."""
    vocab_size = logits.shape[1]
    return upload_lists([[row * vocab_size + token for row, tokens in rows for token in tokens]], logits.device)[0]


def _repeated(values: list[tuple[float, int]], logits: torch.Tensor) -> torch.Tensor:
    flat = [value for value, count in values for _ in range(count)]
    return upload(torch.tensor(flat, dtype=logits.dtype), logits.device)
