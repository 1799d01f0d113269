"""The greedy choice of tokens, in torch or by a kernel that was seen to choose the same."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import torch

from core_engine.model.kernels import BestTokens

_log = logging.getLogger("jitney.model")

Chooser = Callable[[torch.Tensor], torch.Tensor]
_TRIAL_SIZE = 1003  # of a vocabulary; no kernel's vectors fit into it without a rest


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """Index of the largest of each row of `[rows, vocab_size]`, -1 where that isn't finite or a NaN is there."""
    largest, tokens = logits.max(-1)
    return tokens.masked_fill(~largest.isfinite(), -1)


@torch.inference_mode()
def chooser(kernel: BestTokens | None, device: torch.device) -> Chooser:
    """`best_tokens`, by the kernel for the formats that it reads, if it chooses the same in a trial."""
    if kernel is None:
        return best_tokens
    served = [dtype for dtype in (torch.float32, torch.bfloat16, torch.float16) if kernel.refusal(dtype) is None]
    trial = _trial(device)
    for dtype in served:
        if not torch.equal(kernel(trial.to(dtype)), best_tokens(trial.to(dtype))):
            _log.warning("%s chooses other tokens than torch and is not used for that", kernel.name)
            return best_tokens
    return lambda logits: kernel(logits) if logits.dtype in served else best_tokens(logits)


def _trial(device: torch.device) -> torch.Tensor:
    """Rows without a pattern, of equal numbers, and with what no logits should hold."""
    numbers = torch.arange(8 * _TRIAL_SIZE, dtype=torch.float32, device=device).mul_(12.9898).sin_()
    rows = numbers.view(8, _TRIAL_SIZE)
    rows[1] -= 5.0
    rows[2] = -3.0
    rows[3] = -math.inf
    rows[4, 700] = math.inf
    rows[5, 1] = math.nan
    rows[6, -1] = math.nan
    rows[7, :-1] = -math.inf
    return rows
