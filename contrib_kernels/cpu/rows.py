"""FewRows: linear layers for one to eight rows, straight from oneDNN's packed weight."""

from __future__ import annotations

from collections.abc import Callable

import torch

from contrib_kernels.cpu.library import Library, is_bf16, serves
from contrib_kernels.cpu.packing import find_packing


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
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The layer as a function of contiguous bfloat16 states `[.., inputs]`; None for a weight packed otherwise."""
        outputs, inputs = weight.shape
        if inputs % 2 or not serves(out_dtype) or (bias is not None and bias.dtype != torch.bfloat16):
            return None
        packing = find_packing(packed_weight, weight)
        if packing is None:
            return None
        address = torch.ops.mkldnn.data_ptr(packed_weight)
        offset = None if bias is None else bias.data_ptr()
        sizes = (inputs, outputs, *packing, is_bf16(out_dtype))
        few_rows = self._library.few_rows

        def multiply(states: torch.Tensor) -> torch.Tensor:
            states = states.contiguous()
            out = states.new_empty(*states.shape[:-1], outputs, dtype=out_dtype)
            few_rows(states.data_ptr(), address, offset, out.data_ptr(), states.numel() // inputs, *sizes)
            return out

        return multiply
