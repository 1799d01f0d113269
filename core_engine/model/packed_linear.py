"""Linear layers with weights packed for the CPU's bfloat16 matrix units.

torch's own `linear` repacks a bfloat16 weight on every call; packed once, it is 1.4 to 1.9 times
faster at 1 to 32 rows. A layer holds either form of its weight, never both. A few rows go through a kernel of
their own, where one reads the same packed weight faster.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core_engine.model.kernels import RowProduct

_log = logging.getLogger("jitney.model")

_ROWS_HINT = 16  # one packing serves every number of rows about equally well
_TOLERANCE = 0.01  # of the norm: rounding to bfloat16 gives a third of that


class PackedLinear(nn.Module):
    """Computes what the `nn.Linear` it was made from computes, with its weight packed by oneDNN.

    The product for few rows answers in `few_rows_dtype`, for those to whom rounding once less matters.
    """

    def __init__(
        self,
        linear: nn.Linear,
        row_product: RowProduct | None = None,
        few_rows_dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self.packed_weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS_HINT)
        self._max_few_rows = 0
        self._few_rows: Callable[[torch.Tensor], torch.Tensor] | None = None
        self.few_rows_refusal: str | None = None
        if row_product is not None:
            self.few_rows_refusal = self._adopt(row_product, linear.weight.detach(), few_rows_dtype)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`states @ weight.T + bias`."""
        if self._few_rows is not None and states.numel() <= self._max_few_rows * self.in_features:
            return self._few_rows(states)
        return self._product(states)

    @property
    def few_rows(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The product for few rows, where there is one."""
        return self._few_rows

    @property
    def packed_bytes(self) -> int:
        """Memory that the packed weight takes, padding included."""
        return int(torch.ops.mkldnn._nbytes(self.packed_weight))

    def unpacked(self) -> nn.Linear:
        """The plain layer again."""
        linear = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(self.packed_weight.to_dense(), requires_grad=False)
        linear.bias = self.bias
        return linear

    def _product(self, states: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(states, self.packed_weight, self.bias, "none", [], "")

    def _adopt(self, row_product: RowProduct, weight: torch.Tensor, dtype: torch.dtype) -> str | None:
        """Use the product for few rows if it gives what oneDNN gives, else say why not."""
        few_rows = row_product.product(self.packed_weight, weight, self.bias, dtype)
        if few_rows is None:
            return "can't read such weights in the way that oneDNN packs them here"
        states = any_states(row_product.max_rows, self.in_features).to(torch.bfloat16)
        expected = self._product(states).float()
        if not (few_rows(states).float() - expected).norm() <= _TOLERANCE * expected.norm():
            return "gives other results than oneDNN does"
        self._few_rows, self._max_few_rows = few_rows, row_product.max_rows
        return None


def any_states(num_rows: int, size: int) -> torch.Tensor:
    """Float32 `[num_rows, size]` without a pattern, to try products with: every input counts for every output."""
    return torch.arange(num_rows * size, dtype=torch.float32).mul_(12.9898).sin_().view(num_rows, size)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this torch packs weights of that type on that device."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


@torch.inference_mode()
def pack_linears(model: nn.Module, row_product: RowProduct | None = None) -> int:
    """Replace every `nn.Linear` of the model by a PackedLinear; returns how many.

    One at a time, so that no more than one weight exists twice. A weight that an embedding uses too
    stays with the embedding. Logits of few rows come in float32: rounded to bfloat16, the best of them are
    often equal, and the greedy choice is one by number.
    """
    head = output_layer(model)
    refusals: Counter[str] = Counter()

    def packed(linear: nn.Linear) -> PackedLinear:
        layer = PackedLinear(linear, row_product, torch.float32 if linear is head else torch.bfloat16)
        if layer.few_rows_refusal:
            refusals[f"{linear.out_features} x {linear.in_features}: {layer.few_rows_refusal}"] += 1
        return layer

    count = replace_layers(model, nn.Linear, packed)
    for refusal, num_layers in refusals.items():
        assert row_product is not None
        _log.warning(
            "answers to few requests at once are slower than they could be: the product for few rows, %s, is not used "
            "for %d linear layers of %s",
            *(row_product.name, num_layers, refusal),
        )
    return count


@torch.inference_mode()
def unpack_linears(model: nn.Module) -> None:
    """Undo `pack_linears`, for a model whose code reaches past its layers to their weights."""
    replace_layers(model, PackedLinear, PackedLinear.unpacked)


def output_layer(model: Any) -> nn.Module | None:
    """The layer that makes logits, where the model names it."""
    return model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None


def replace_layers(model: nn.Module, old_type: type, make: Callable[[Any], nn.Module]) -> int:
    """Put what `make` makes of it in the place of every layer of exactly that type; returns how many."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is old_type:
                setattr(parent, name, make(child))
                count += 1
    return count
