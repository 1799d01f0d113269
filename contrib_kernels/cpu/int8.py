"""CpuInt8Rows: rows to and from eight bits in C++, and linear layers of int8 weights for one to eight rows."""

from __future__ import annotations

import torch

from contrib_kernels.cpu.library import Library, LinearLayer, is_bf16, serves
from contrib_kernels.cpu.packing import packed_layer
from core_engine.model.int8_rows import ZERO_POINT


class CpuInt8Rows:
    """Int8Rows for float32 and bfloat16.

    The product reads `inputs * outputs` bytes once for all rows, as oneDNN packed them; it is there with AVX-512 VNNI.
    """

    max_rows = 8

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def quantize(self, states: torch.Tensor, factors: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """See Int8Rows."""
        states = states.contiguous()
        size = states.shape[-1]
        quantized = torch.empty(states.numel() // size, size, dtype=torch.uint8)
        scales = torch.empty(quantized.shape[0], dtype=torch.float32)
        self._library.quantize_rows(
            *(states.data_ptr(), None if factors is None else factors.data_ptr()),
            *(quantized.data_ptr(), scales.data_ptr(), *quantized.shape, is_bf16(states.dtype)),
        )
        return quantized, scales

    def rescale(self, products: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> None:
        """See Int8Rows."""
        address, bias_is_bf16 = (None, 0) if bias is None else (bias.data_ptr(), is_bf16(bias.dtype))
        self._library.rescale_rows(
            *(products.data_ptr(), scales.data_ptr(), address, *products.shape),
            *(is_bf16(products.dtype), bias_is_bf16),
        )

    def product(
        self,
        packed_weight: torch.Tensor,
        weight: torch.Tensor,
        weight_scales: torch.Tensor,
        factors: torch.Tensor,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> Int8Linear | None:
        """See Int8Rows."""
        layer = packed_layer(packed_weight, weight, bias) if self._library.has_few_rows_int8 else None
        if layer is None or not serves(out_dtype):
            return None
        offsets = weight.sum(-1, dtype=torch.int32).mul_(ZERO_POINT)
        layer.factors, layer.scales, layer.offsets = factors.data_ptr(), weight_scales.data_ptr(), offsets.data_ptr()
        return Int8Linear(self._library, layer, offsets, out_dtype)


class Int8Linear:
    """A linear layer of int8 weights that lie where `parameters` says; keeps `offsets`, which nobody else does."""

    def __init__(
        self, library: Library, parameters: LinearLayer, offsets: torch.Tensor, out_dtype: torch.dtype
    ) -> None:
        self.parameters = parameters
        self.out_dtype = out_dtype
        self._few_rows = library.few_rows_int8
        self._offsets = offsets
        self._addresses = (
            *(parameters.factors, parameters.weight, parameters.scales),
            *(parameters.offsets, parameters.bias),
        )
        self._inputs, self._outputs = parameters.inputs, parameters.outputs
        self._sizes = (parameters.inputs, parameters.outputs, parameters.block_outputs, parameters.padded_inputs)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """`[.., outputs]` of states `[.., inputs]`."""
        states = states.contiguous()
        out = states.new_empty(*states.shape[:-1], self._outputs, dtype=self.out_dtype)
        rows = states.numel() // self._inputs
        self._few_rows(
            *(states.data_ptr(), *self._addresses, out.data_ptr(), rows, *self._sizes),
            *(is_bf16(states.dtype), is_bf16(self.out_dtype)),
        )
        return out
