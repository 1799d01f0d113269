"""Linear layers of float32 rows with weights in as few bits as they need.

Where a processor has no units for bfloat16, a model computes in float32. Its weights, though, mostly come as
bfloat16, and stay that: each is exactly the float32 number that it would be widened to before. So they take half the
memory, and half the time where reading them is all there is to do. With int8 weights it is the same once more, but for
rounding.
"""

from __future__ import annotations

import logging
from collections import Counter

import torch
from torch import nn
from torch.nn import functional

from core_engine.model.float_embedding import float_embeddings, is_bfloat16, unfloat_embeddings
from core_engine.model.kernels import FloatProduct, PackedProduct
from core_engine.model.packed_linear import any_states, replace_layers
from core_engine.model.quantized_linear import quantize_weight

_log = logging.getLogger("jitney.model")

_TOLERANCE = 1e-5  # of the norm: what other orders of adding up explain
_NUM_TRIAL_ROWS = 3


class FloatLinear(nn.Module):
    """What `product` computes, in the place of the `nn.Linear` that it was made from."""

    def __init__(self, linear: nn.Linear, product: PackedProduct) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self.product = product

    @property
    def few_rows(self) -> PackedProduct:
        """The product for few rows, which is that for many."""
        return self.product

    @property
    def packed_bytes(self) -> int:
        """Memory that the packed weight takes."""
        return self.product.packed_bytes

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`states @ weight.T + bias`."""
        return self.product(states)

    def unpacked(self) -> nn.Linear:
        """The plain layer again."""
        linear = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(self.product.weight(), requires_grad=False)
        linear.bias = self.bias
        return linear


@torch.inference_mode()
def float_linears(model: nn.Module, float_product: FloatProduct, *, to_int8: bool = False) -> int:
    """Replace the `nn.Linear` layers of a float32 model by FloatLinear ones; returns how many.

    A weight that holds nothing but bfloat16 numbers becomes bfloat16, and with `to_int8` every one int8. Layers of
    which the product gives something else than torch does stay what they are, with a warning. Embeddings become
    FloatEmbedding, exact as they are.
    """
    refusals: Counter[str] = Counter()
    products: dict[int, PackedProduct | None] = {}  # by the id of the weight, which may go meanwhile

    def packed(linear: nn.Linear) -> nn.Module:
        weight, scales = linear.weight.detach(), None
        if to_int8:
            weight, scales = quantize_weight(weight)
        elif is_bfloat16(weight):
            weight = weight.bfloat16()
        bias = None if linear.bias is None else linear.bias.detach()
        product = float_product.product(weight, scales, bias)
        if product is None or not _is_right(product, weight, scales, bias):
            reason = "can't read such weights" if product is None else "gives other results than torch does"
            refusals[f"{linear.out_features} x {linear.in_features}: {reason}"] += 1
            products[id(linear.weight)] = None
            return linear
        if not to_int8:
            products[id(linear.weight)] = product
        return FloatLinear(linear, product)

    replace_layers(model, nn.Linear, packed)
    float_embeddings(model, products)
    for refusal, num_layers in refusals.items():
        _log.warning("%s is not used for %d linear layers of %s", float_product.name, num_layers, refusal)
    return sum(isinstance(module, FloatLinear) for module in model.modules())


@torch.inference_mode()
def unfloat_linears(model: nn.Module) -> None:
    """Undo `float_linears`, for a model whose code reaches past its layers to their weights."""
    weights: dict[PackedProduct, nn.Parameter] = {}

    def unpacked(layer: FloatLinear) -> nn.Linear:
        linear = layer.unpacked()
        weights[layer.product] = linear.weight
        return linear

    replace_layers(model, FloatLinear, unpacked)
    unfloat_embeddings(model, weights)


def _is_right(
    product: PackedProduct, weight: torch.Tensor, scales: torch.Tensor | None, bias: torch.Tensor | None
) -> bool:
    states = any_states(_NUM_TRIAL_ROWS, weight.shape[1])
    floats = weight.float()
    expected = functional.linear(states, floats if scales is None else floats * scales.unsqueeze(-1), bias)
    return bool((product(states) - expected).norm() <= _TOLERANCE * expected.norm())
