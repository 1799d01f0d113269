"""FewRows: linear layers for one to eight rows, straight from oneDNN's packed weight."""

from __future__ import annotations

import torch

from contrib_kernels.cpu.library import Library, LinearLayer, is_bf16, serves
from contrib_kernels.cpu.packing import packed_layer


class FewRows:
    """RowProduct for bfloat16 weights that oneDNN packed as blocks of pairs (see Packing).

    Reads `2 * inputs * outputs` bytes once for all rows and takes `2 * inputs * outputs` operations a
    row: with so few rows the time is that of reading. The weight isn't held a second time.
    """

    max_rows = 8

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def product(
        self,
        packed_weight: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> FewRowsLinear | None:
        """The layer as a function of contiguous bfloat16 states `[.., inputs]`; None for a weight packed otherwise."""
        if weight.shape[1] % 2 or not serves(out_dtype) or (bias is not None and bias.dtype != torch.bfloat16):
            return None
        layer = packed_layer(packed_weight, weight, bias)
        return None if layer is None else FewRowsLinear(self._library, layer, out_dtype)


class FewRowsLinear:
    """A linear layer of bfloat16 weights that lie where `parameters` says."""

    def __init__(self, library: Library, parameters: LinearLayer, out_dtype: torch.dtype) -> None:
        self.parameters = parameters
        self.out_dtype = out_dtype
        self._few_rows = library.few_rows
        self._addresses = (parameters.weight, parameters.bias)
        self._inputs, self._outputs = parameters.inputs, parameters.outputs
        self._sizes = (
            *(parameters.inputs, parameters.outputs, parameters.block_outputs, parameters.padded_inputs),
            is_bf16(out_dtype),
        )

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """`[.., outputs]` of bfloat16 states `[.., inputs]`."""
        states = states.contiguous()
        out = states.new_empty(*states.shape[:-1], self._outputs, dtype=self.out_dtype)
        rows = states.numel() // self._inputs
        self._few_rows(states.data_ptr(), *self._addresses, out.data_ptr(), rows, *self._sizes)
        return out
