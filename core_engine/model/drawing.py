"""Draw tokens from filtered distributions, one uniform number a row.

A row's draw depends on its own logits and number only, never on how many rows there are or what
they ask for: which of two ways it takes (below) is decided row by row.
"""

from __future__ import annotations

import torch

from core_engine.model.layout import upload
from core_engine.request import SamplingParams

# Sorting a whole vocabulary is slow on a CPU, and nearly all nuclei lie within this many tokens.
_NUM_CANDIDATES = 1024
_CDF_BLOCK = 256


def draw(logits: torch.Tensor, sampling: list[SamplingParams], uniforms: torch.Tensor) -> torch.Tensor:
    """Token ids `[rows]` for float32 logits `[rows, vocab_size]` and float64 uniforms in (0, 1) on their device.

    Temperature first, then `min_p` (against the best token), `top_k`, and `top_p` on what these leave,
    renormalised. Every temperature must be above 0. The best token is always kept.
    """
    temperatures = _column([s.temperature for s in sampling], logits)
    # Relative to the best token, so that a tiny temperature overflows nothing.
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperatures
    probabilities = scaled.softmax(-1)
    if any(s.min_p > 0.0 for s in sampling):
        floor = _column([s.min_p for s in sampling], logits) * probabilities.amax(-1, keepdim=True)
        probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
    tokens = torch.empty(len(sampling), dtype=torch.int64, device=logits.device)
    cut = [row for row, s in enumerate(sampling) if s.top_p < 1.0 or 0 < s.top_k < logits.shape[1]]
    whole = sorted(set(range(len(sampling))) - set(cut))
    for rows, choose in ((whole, _from_all), (cut, _from_best)):
        if rows:
            index = upload(torch.tensor(rows), logits.device)
            chosen = choose(
                probabilities.index_select(0, index), [sampling[row] for row in rows], uniforms.index_select(0, index)
            )
            tokens.index_copy_(0, index, chosen)
    return tokens


def _from_all(probabilities: torch.Tensor, sampling: list[SamplingParams], uniforms: torch.Tensor) -> torch.Tensor:
    """Invert the distribution function in two steps: the block that holds the point, then the token in it."""
    rows, vocab_size = probabilities.shape
    padded = torch.nn.functional.pad(probabilities, (0, -vocab_size % _CDF_BLOCK)).view(rows, -1, _CDF_BLOCK)
    ends = padded.sum(-1).cumsum(-1, dtype=torch.float64)
    target = uniforms.unsqueeze(1) * ends[:, -1:]
    block = torch.searchsorted(ends, target, right=True).clamp_max_(ends.shape[1] - 1)
    before = torch.where(block > 0, ends.gather(1, (block - 1).clamp_min(0)), 0.0)
    inside = padded.gather(1, block.unsqueeze(2).expand(-1, 1, _CDF_BLOCK)).squeeze(1)
    offset = _invert(inside, target - before)
    return block.squeeze(1) * _CDF_BLOCK + offset


def _from_best(probabilities: torch.Tensor, sampling: list[SamplingParams], uniforms: torch.Tensor) -> torch.Tensor:
    """Draw among the best tokens; rows whose cut lies beyond the candidates get them all."""
    vocab_size = probabilities.shape[1]
    on_cpu = probabilities.device.type == "cpu"
    num_candidates = min(_NUM_CANDIDATES, vocab_size) if on_cpu else vocab_size
    best, ids = probabilities.topk(num_candidates, dim=-1) if on_cpu else probabilities.sort(-1, descending=True)
    kept, complete = _cut(best, probabilities.sum(-1, dtype=torch.float64), sampling)
    tokens = ids.gather(1, _invert(kept, uniforms.unsqueeze(1) * kept.sum(-1, True, dtype=torch.float64)).unsqueeze(1))
    if num_candidates < vocab_size:
        for row in (~complete).nonzero().flatten().tolist():
            best, ids = probabilities[row : row + 1].sort(-1, descending=True)
            kept, _ = _cut(best, best.sum(-1, dtype=torch.float64), sampling[row : row + 1])
            place = _invert(kept, uniforms[row].view(1, 1) * kept.sum(-1, True, dtype=torch.float64))
            tokens[row] = ids[0, place]
    return tokens.squeeze(1)


def _cut(best: torch.Tensor, total: torch.Tensor, sampling: list[SamplingParams]) -> tuple[torch.Tensor, torch.Tensor]:
    """Zero what `top_k` and `top_p` leave out of descending probabilities; and whether the cut lies within them."""
    num_candidates = best.shape[1]
    limits = upload(torch.tensor([s.top_k if s.top_k > 0 else 1 << 62 for s in sampling]), best.device).unsqueeze(1)
    places = torch.arange(num_candidates, device=best.device)
    within_k = best.masked_fill(places >= limits, 0.0).double()
    cumulative = within_k.cumsum(-1)
    # What top_k leaves is its total where the limit lies among the candidates, else the whole distribution.
    mass = torch.where(limits <= num_candidates, cumulative[:, -1:], total.unsqueeze(1))
    wanted = _column([s.top_p for s in sampling], cumulative) * mass
    left_out = cumulative - within_k >= wanted
    left_out[:, 0] = False
    kept = within_k.masked_fill(left_out, 0.0)
    complete = (limits.squeeze(1) <= num_candidates) | (cumulative[:, -1:] >= wanted).squeeze(1)
    return kept, complete


def _invert(weights: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Index of the first weight at which the running sum exceeds `target` `[rows, 1]`, one with weight above 0."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    # Rounding may carry the target to the very end; the last weight that counts is then the one.
    last = (cumulative < cumulative[:, -1:]).sum(-1)
    found = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    return torch.minimum(found, last)


def _column(values: list[float], like: torch.Tensor) -> torch.Tensor:
    return upload(torch.tensor(values, dtype=like.dtype), like.device).unsqueeze(1)
