"""FloatRows: linear layers of float32 rows whose weights are held in 32, 16 or 8 bits."""

from __future__ import annotations

from ctypes import byref

import torch
from torch.nn import functional

from contrib_kernels.cpu.library import WEIGHT_FORMATS, Library, LinearLayer


class FloatRows:
    """FloatProduct for weights in float32, bfloat16 and int8, in vectors of any width.

    Takes `2 * inputs * outputs` operations a row, and reads the weight, of 4, 2 or 1 bytes a number, once for as many
    rows as have room in half of a core's second cache.
    """

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def product(
        self, weight: torch.Tensor, scales: torch.Tensor | None, bias: torch.Tensor | None
    ) -> FloatRowsLinear | None:
        """See FloatProduct; None for weights and biases in another format."""
        if weight.dtype not in WEIGHT_FORMATS or (bias is not None and bias.dtype != torch.float32):
            return None
        return FloatRowsLinear(self._library, weight, scales, bias)


class FloatRowsLinear:
    """A linear layer with the weight packed as `[blocks][inputs][outputs of a block]`, which is two vectors wide."""

    out_dtype = torch.float32

    def __init__(
        self, library: Library, weight: torch.Tensor, scales: torch.Tensor | None, bias: torch.Tensor | None
    ) -> None:
        self._outputs, self._inputs = weight.shape
        self._dtype, self._lanes = weight.dtype, library.lanes
        self._float_rows = library.float_rows
        self._kept = (_pack(weight, library.lanes), scales, bias)
        self.parameters = LinearLayer(
            weight=self._kept[0].data_ptr(),
            scales=None if scales is None else scales.data_ptr(),
            bias=None if bias is None else bias.data_ptr(),
            inputs=self._inputs,
            outputs=self._outputs,
            format=WEIGHT_FORMATS[weight.dtype],
        )
        self._address = byref(self.parameters)

    @property
    def packed_bytes(self) -> int:
        """Memory that the packed weight and its scales take, padding included."""
        packed, scales, _ = self._kept
        return packed.nbytes + (0 if scales is None else scales.nbytes)

    def weight(self) -> torch.Tensor:
        """See PackedProduct."""
        return self.rows(torch.arange(self._outputs))

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """See PackedProduct."""
        packed, scales, _ = self._kept
        block, place = indices // (2 * self._lanes), indices % (2 * self._lanes)
        half, lane = place // self._lanes, place % self._lanes
        if self._dtype == torch.bfloat16:
            return packed[block, :, lane, half].view(torch.bfloat16).float()
        rows = packed[block, :, half, lane].float()
        return rows if scales is None else rows * scales[indices].unsqueeze(-1)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """`[.., outputs]` of float32 states `[.., inputs]`."""
        states = states.contiguous()
        out = states.new_empty(*states.shape[:-1], self._outputs)
        self._float_rows(self._address, states.data_ptr(), out.data_ptr(), states.numel() // self._inputs)
        return out


def _pack(weight: torch.Tensor, lanes: int) -> torch.Tensor:
    """The weight in blocks, the last one filled up with zeros; bfloat16 in words of one number of each vector."""
    outputs, inputs = weight.shape
    if weight.dtype == torch.bfloat16:
        weight = weight.view(torch.int16)  # only moved about, which is faster so
    blocks = functional.pad(weight, (0, 0, 0, -outputs % (2 * lanes))).view(-1, 2, lanes, inputs)
    order = (0, 3, 2, 1) if weight.dtype == torch.int16 else (0, 3, 1, 2)
    return blocks.permute(order).contiguous()
