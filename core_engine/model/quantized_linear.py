"""Linear layers with int8 weights, for CPUs that multiply eight-bit numbers.

A weight is int8 with a scale for each output; the rows that meet it become uint8 with a scale for each
row, at every call. oneDNN's product of the two adds up whole numbers, so that all that is lost is
rounding: of weights once, of rows by half a part in 127 of their largest number. Both are smoothed before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from core_engine.errors import ModelError
from core_engine.model.int8_rows import ZERO_POINT, Int8Rows, ReferenceInt8Rows
from core_engine.model.packed_linear import any_states, output_layer, replace_layers
from core_engine.model.smoothing import smoothing_factors

_log = logging.getLogger("jitney.model")

_LARGEST = 127
_TOLERANCE = 1e-3  # of the norm, with rows of about fifteen bits
_FEW_ROWS_TOLERANCE = 0.01  # of the norm: the same whole numbers, rounded to bfloat16
_SLICE = 4096  # outputs that are floats at once while a weight is compared


class QuantizedLinear(nn.Module):
    """Computes what the `nn.Linear` it was made from computes, with its weight rounded to int8.

    The product for few rows answers in `few_rows_dtype`. Raises ModelError where oneDNN's product isn't that
    of the rounded weights.
    """

    def __init__(
        self,
        linear: nn.Linear,
        rows: Int8Rows,
        few_rows_dtype: torch.dtype,
        input_peaks: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self.is_precise = False
        self._rows = rows
        self._dtype = linear.weight.dtype
        weight = linear.weight.detach()
        factors = torch.ones(self.in_features) if input_peaks is None else smoothing_factors(input_peaks, weight)
        self._factors = 1.0 / factors
        weight, self._scales = quantize_weight(weight * factors)
        self._zero_points = torch.zeros(self.out_features, dtype=torch.int64)
        self._packed_weight = torch.ops.onednn.qlinear_prepack(weight, None)
        self._few_rows: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._check(weight)
        self._few_rows = self._product_of_few_rows(weight, few_rows_dtype)

    @property
    def few_rows(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The product for few rows, where there is one and it is in use."""
        return None if self.is_precise else self._few_rows

    @property
    def packed_bytes(self) -> int:
        """Memory that the packed weight takes, with its scales and factors."""
        return int(torch.ops.mkldnn._nbytes(self._packed_weight)) + 12 * self.out_features + 4 * self.in_features

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`states @ weight.T + bias`."""
        if self.is_precise:
            return self._precise(states).to(self._dtype)
        if self._few_rows is not None and states.numel() <= self._rows.max_rows * self.in_features:
            return self._few_rows(states)
        quantized, scales = self._rows.quantize(states, self._factors)
        products = self.product(quantized, self._dtype)
        self._rows.rescale(products, scales, self.bias)
        return products.view(*states.shape[:-1], self.out_features)

    def _precise(self, states: torch.Tensor) -> torch.Tensor:
        """In float32, with what rounding the rows leaves over rounded and multiplied as well: about fifteen bits."""
        smoothed = states.flatten(0, -2).float() * self._factors
        quantized, scales = self._rows.quantize(smoothed)
        rest = smoothed - (quantized.float() - ZERO_POINT) * scales.unsqueeze(-1)
        quantized_rest, scales_of_rest = self._rows.quantize(rest)
        total, more = self.product(quantized, torch.float32), self.product(quantized_rest, torch.float32)
        self._rows.rescale(more, scales_of_rest, None)
        self._rows.rescale(total, scales, self.bias)
        return total.add_(more).view(*states.shape[:-1], self.out_features)

    def product(self, quantized: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the product of uint8 rows with the weight, in units of their scales."""
        return torch.ops.onednn.qlinear_pointwise(
            *(quantized, 1.0, ZERO_POINT, self._packed_weight, self._scales, self._zero_points, None),
            *(1.0, 0, dtype, "none", [], ""),
        )

    def _check(self, weight: torch.Tensor) -> None:
        states = any_states(2, self.in_features)
        found = self._precise(states)
        for first in range(0, self.out_features, _SLICE):
            part = slice(first, first + _SLICE)
            expected = (states * self._factors) @ (weight[part].float() * self._scales[part].unsqueeze(-1)).T
            if self.bias is not None:
                expected += self.bias[part]
            if not (found[:, part] - expected).norm() <= _TOLERANCE * expected.norm():
                raise ModelError(
                    f"oneDNN's int8 product of {self.out_features} x {self.in_features} weights is wrong on this "
                    "processor; leave quantize out"
                )

    def _product_of_few_rows(
        self, weight: torch.Tensor, dtype: torch.dtype
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        few_rows = self._rows.product(self._packed_weight, weight, self._scales, self._factors, self.bias, dtype)
        if few_rows is None:
            return None
        states = any_states(self._rows.max_rows, self.in_features).to(self._dtype)
        expected = self(states.repeat(2, 1))[: self._rows.max_rows].float()
        is_same = (few_rows(states).float() - expected).norm() <= _FEW_ROWS_TOLERANCE * expected.norm()
        return few_rows if is_same else None


def quantize_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 `[outputs, inputs]` and float32 scales `[outputs]`, the largest of each output over 127."""
    scales = weight.abs().amax(-1).float() / _LARGEST
    scales[scales == 0] = 1.0
    return (weight / scales.unsqueeze(-1)).round_().to(torch.int8), scales


def int8_refusal(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why weights can't be int8 there; None where they can."""
    if device.type != "cpu":
        return f"only CPUs compute it, and the model runs on '{device.type}'"
    if dtype not in (torch.bfloat16, torch.float32):
        return f"it goes with bfloat16 and float32, not with {str(dtype).removeprefix('torch.')}"
    if not (torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()):
        return "this processor has neither AVX-512 VNNI nor AMX, without which it would be slower than bfloat16"
    if not hasattr(torch.ops.onednn, "qlinear_prepack"):
        return f"torch {torch.__version__} was built without oneDNN"
    return None


@torch.inference_mode()
def quantize_linears(
    model: nn.Module, rows: Int8Rows | None = None, input_peaks: dict[nn.Module, torch.Tensor] | None = None
) -> int:
    """Replace every `nn.Linear` but the output layer by a QuantizedLinear; returns how many. Raises ModelError.

    What the output layer rounds goes into the logits as it is: it alone would cost as much precision as half of the
    others. The table that an embedding looks tokens up in stays as it is too: a look-up reads one row.
    `input_peaks`: as `smoothing.input_peaks` finds them.
    """
    head = output_layer(model)
    used, peaks = rows or ReferenceInt8Rows(), input_peaks or {}

    def quantized(linear: nn.Linear) -> nn.Module:
        if linear is head:
            return linear
        return QuantizedLinear(linear, used, linear.weight.dtype, peaks.get(linear))

    replace_layers(model, nn.Linear, quantized)
    return sum(isinstance(module, QuantizedLinear) for module in model.modules())


@contextmanager
def precise(model: nn.Module) -> Iterator[None]:
    """Let quantised layers round rows so finely meanwhile that they compute what their weights say."""
    layers = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    for layer in layers:
        layer.is_precise = True
    try:
        yield
    finally:
        for layer in layers:
            layer.is_precise = False
