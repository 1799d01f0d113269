"""Log-probabilities of prompt tokens, a slice of rows at a time: tokens times vocabulary is never in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from core_engine.executor import Batch
from core_engine.model.layout import download, padding_rows, upload_lists
from core_engine.prompt_logprobs import PromptLogprobs

_SLICE_BYTES = 32 << 20  # of float32 logits
_PIECE_TOKENS = 256  # of one PromptLogprobs, which the receiver turns into objects at once


@dataclass(slots=True)
class PromptScores:
    """Scores of all prompt tokens that a batch asks for, on the device until `fetch`ed."""

    wanted: list[tuple[int, range, int]]  # (row, positions, rivals)
    logprobs: torch.Tensor  # [tokens]
    ranks: torch.Tensor
    rival_ids: torch.Tensor  # [tokens, most rivals]
    rival_logprobs: torch.Tensor

    def to_host(self) -> None:
        """Start the copies to the host, without waiting for them."""
        self.logprobs, self.ranks = download(self.logprobs), download(self.ranks)
        self.rival_ids, self.rival_logprobs = download(self.rival_ids), download(self.rival_logprobs)

    def fetch(self) -> dict[int, list[PromptLogprobs]]:
        """By row, packed."""
        fetched: dict[int, list[PromptLogprobs]] = {}
        start = 0
        for row, positions, num_rivals in self.wanted:
            pieces = fetched[row] = []
            num_rivals = min(num_rivals, self.rival_ids.shape[1])
            for offset in range(0, len(positions), _PIECE_TOKENS):
                tokens = slice(start + offset, start + min(offset + _PIECE_TOKENS, len(positions)))
                pieces.append(
                    PromptLogprobs(
                        positions[offset],
                        num_rivals,
                        _pack(self.logprobs[tokens]),
                        _pack(self.ranks[tokens]),
                        _pack(self.rival_ids[tokens, :num_rivals]),
                        _pack(self.rival_logprobs[tokens, :num_rivals]),
                    )
                )
            start += len(positions)
        return fetched


def score(
    batch: Batch, logits_of: Callable[[torch.Tensor], torch.Tensor], vocab_size: int, device: torch.device
) -> PromptScores:
    """Score what `batch.scored` names; `logits_of` gives the logits `[rows, vocab_size]` of flat indices."""
    wanted = [
        (row, positions, batch.sequences[row].sampling.prompt_logprobs or 0) for row, positions in batch.scored.items()
    ]
    most_rivals = max(num_rivals for _, _, num_rivals in wanted)
    rows = _rows_to_score(batch)
    tokens = [token for row, p, _ in wanted for token in batch.sequences[row].token_ids[p.start : p.stop]]
    step = max(8, _SLICE_BYTES // (4 * vocab_size) // 8 * 8)
    slices = []
    for done in range(0, len(rows), step):
        chosen = rows[done : done + step]
        padded = chosen + [0] * padding_rows(len(chosen), device)
        index, targets = upload_lists([padded, tokens[done : done + step]], device)
        logits = logits_of(index)[: len(chosen)].float()
        slices.append(_score_slice(logits, targets, min(most_rivals, logits.shape[1])))
    return PromptScores(wanted, *(torch.cat(parts) for parts in zip(*slices, strict=True)))


def _rows_to_score(batch: Batch) -> list[int]:
    """Flat indices of the rows whose logits tell about the tokens that `batch.scored` names, in that order."""
    starts: list[int] = []  # flat index that position 0 of each row would have
    end = 0
    for num_queries, num_keys in zip(batch.num_query_tokens, batch.num_kv_tokens, strict=True):
        end += num_queries
        starts.append(end - num_keys)
    return [starts[row] + position - 1 for row, positions in batch.scored.items() for position in positions]


def _score_slice(
    logits: torch.Tensor, targets: torch.Tensor, num_rivals: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    normaliser = logits.logsumexp(-1, keepdim=True)
    at_target = logits.gather(1, targets.unsqueeze(1))
    ranks = (logits > at_target).sum(-1, dtype=torch.int32) + 1
    best, best_ids = logits.topk(num_rivals, dim=-1)
    return (at_target - normaliser).squeeze(1), ranks, best_ids.int(), best - normaliser


def _pack(values: torch.Tensor) -> bytes:
    return values.numpy().tobytes()
