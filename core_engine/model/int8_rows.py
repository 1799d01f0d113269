"""What lies around int8 products: rows of activations as eight-bit numbers, and what comes out as floats again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

ZERO_POINT = 128  # what stands for zero in a uint8 row, as oneDNN's fast products want activations
_LARGEST = 127  # on either side


class Int8Rows(Protocol):
    """Rows to and from eight bits, and linear layers of int8 weights for a few rows.

    Every row has a scale of its own, so that what becomes of a token never depends on its neighbours.
    """

    name: str
    max_rows: int

    def quantize(self, states: torch.Tensor, factors: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 `[rows, size]` and float32 `[rows]` of `states` `[.., size]`: `(uint8 - ZERO_POINT) * scale`.

        With `factors`, float32 `[size]`, it is the states times these. The scale of a row is its largest number over
        127; it is no number where the row holds one that isn't finite.
        """
        ...

    def rescale(self, products: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> None:
        """`products` `[rows, outputs]` times the scale of each row, plus the bias, in place."""
        ...

    def product(
        self,
        packed_weight: torch.Tensor,
        weight: torch.Tensor,
        weight_scales: torch.Tensor,
        factors: torch.Tensor,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The layer as a function of states `[.., inputs]`, of `max_rows` rows at most; None where it can't be.

        `packed_weight` is what oneDNN made of int8 `weight` `[outputs, inputs]`, which must not be kept;
        `weight_scales` are float32 `[outputs]`, `factors` as in `quantize`. The caller keeps all else alive and
        compares before use.
        """
        ...


class ReferenceInt8Rows:
    """Int8Rows by torch."""

    name = "torch"
    max_rows = 0

    def quantize(self, states: torch.Tensor, factors: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """See Int8Rows."""
        rows = states.flatten(0, -2).float()
        if factors is not None:
            rows = rows * factors
        scales = rows.abs().amax(-1) / _LARGEST
        rows = rows / scales.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        return rows.round_().add_(ZERO_POINT).nan_to_num_(ZERO_POINT).to(torch.uint8), scales + (scales - scales)

    def rescale(self, products: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> None:
        """See Int8Rows."""
        products.mul_(scales.unsqueeze(-1))
        if bias is not None:
            products.add_(bias)

    def product(
        self,
        packed_weight: torch.Tensor,
        weight: torch.Tensor,
        weight_scales: torch.Tensor,
        factors: torch.Tensor,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """None: oneDNN's product serves few rows as well."""
        return None
