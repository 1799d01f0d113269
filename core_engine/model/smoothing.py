"""Smoothing: what is large in some inputs of a layer is moved into its weights before both are rounded.

A few inputs of a layer are far larger than the others whatever the text, and a row that is rounded in
parts of its largest number loses the others. Weights have no such outliers: a row is divided by a factor
for each input, and the weight multiplied by it, so that the difficulty is shared. Source: SmoothQuant
(Xiao et al., ICML '23), with half of it moved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core_engine.model.attention import IMPLEMENTATION

_NUM_TOKENS = 256
_SMALLEST = 0.01  # of the mean: inputs that the trial pass hardly saw aren't trusted to stay small


@torch.inference_mode()
def input_peaks(model: Any, max_tokens: int = _NUM_TOKENS) -> dict[nn.Module, torch.Tensor]:
    """The largest magnitude of each input, float32 `[inputs]`, of every linear layer, in a pass of random tokens.

    Which inputs are large hardly depends on the text. Layers that the pass doesn't reach are left out. The model
    takes sequences of `max_tokens`.
    """
    num_tokens = min(max_tokens, _NUM_TOKENS)
    peaks: dict[nn.Module, torch.Tensor] = {}

    def note(layer: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        found = args[0].flatten(0, -2).abs().amax(0).float()
        peaks[layer] = torch.maximum(peaks[layer], found) if layer in peaks else found

    handles = [each.register_forward_pre_hook(note) for each in model.modules() if type(each) is nn.Linear]
    vocab_size = model.get_input_embeddings().weight.shape[0]
    tokens = torch.randint(vocab_size, (1, num_tokens), generator=torch.Generator().manual_seed(0))
    model.set_attn_implementation("eager")
    try:
        model(input_ids=tokens, position_ids=torch.arange(num_tokens).unsqueeze(0), use_cache=False)
    finally:
        model.set_attn_implementation(IMPLEMENTATION)
        for handle in handles:
            handle.remove()
    return peaks


def smoothing_factors(peaks: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What each input of a `weight` `[outputs, inputs]` is to be divided by, float32 `[inputs]`; 1 on average."""
    columns = weight.abs().amax(0).float()
    trusted = peaks.clamp(min=_SMALLEST * float(peaks.mean()))
    factors = (trusted / columns).sqrt()
    usable = factors.isfinite() & (factors > 0)
    if not usable.any():
        return torch.ones_like(factors)
    factors = factors / factors[usable].log().mean().exp()
    return torch.where(usable, factors, 1.0)
