"""Log-probabilities of sampled tokens and their rivals, of the model's own distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from core_engine.messages import TokenLogprobs
from core_engine.model.layout import download, upload_lists

NOT_FINITE = -9999.0  # what stands for a log-probability that JSON has no number for


@dataclass(slots=True)
class Logprobs:
    """Log-probabilities of some rows, on the device until fetched."""

    wanted: list[tuple[int, int]]  # (row, rivals)
    chosen: torch.Tensor  # [wanted]
    best: torch.Tensor  # [wanted, most rivals]
    best_ids: torch.Tensor

    def to_host(self) -> None:
        """Start the copies to the host, without waiting for them."""
        self.chosen, self.best, self.best_ids = download(self.chosen), download(self.best), download(self.best_ids)

    def fetch(self, num_rows: int) -> list[TokenLogprobs | None]:
        """One entry a row, None where not asked for."""
        answers: list[TokenLogprobs | None] = [None] * num_rows
        chosen, best, best_ids = self.chosen.tolist(), self.best.tolist(), self.best_ids.tolist()
        for place, (row, num_rivals) in enumerate(self.wanted):
            rivals = zip(best_ids[place][:num_rivals], best[place][:num_rivals], strict=True)
            answers[row] = TokenLogprobs(_finite(chosen[place]), [(token, _finite(value)) for token, value in rivals])
        return answers


def raw_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, wanted: list[tuple[int, int]]) -> Logprobs:
    """Log-softmax of the wanted rows of raw logits `[rows, vocab_size]`, at the tokens and at the best ones."""
    (rows,) = upload_lists([[row for row, _ in wanted]], logits.device)
    values = logits.index_select(0, rows).float().log_softmax(-1)
    most = min(max(num_rivals for _, num_rivals in wanted), values.shape[1])
    best, best_ids = values.topk(most, dim=-1)
    chosen = values.gather(1, token_ids.index_select(0, rows).unsqueeze(1)).squeeze(1)
    return Logprobs(wanted, chosen, best, best_ids)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else NOT_FINITE
