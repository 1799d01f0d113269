"""FewRows: linear layers for one to eight rows, straight from oneDNN's packed weight."""

from __future__ import annotations

from collections.abc import Callable

import torch

from contrib_kernels.cpu.library import Library, is_bf16, serves

_BLOCK_OUTPUTS = 64


class FewRows:
    """RowProduct for bfloat16 weights that oneDNN packed as `[blocks of 64 outputs][pairs of inputs][64][2]`.

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
        inputs: int,
        outputs: int,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The layer as a function of contiguous bfloat16 states `[.., inputs]`; None for a weight packed otherwise.

        That a weight is packed as expected is not asked here but seen by the caller's comparison.
        """
        padded_outputs = -(-outputs // _BLOCK_OUTPUTS) * _BLOCK_OUTPUTS
        if not serves(out_dtype) or (bias is not None and bias.dtype != torch.bfloat16):
            return None
        if inputs % 2 or torch.ops.mkldnn._nbytes(packed_weight) != 2 * inputs * padded_outputs:
            return None
        weight = torch.ops.mkldnn.data_ptr(packed_weight)
        offset = None if bias is None else bias.data_ptr()
        few_rows, in_bf16 = self._library.few_rows, is_bf16(out_dtype)

        def multiply(states: torch.Tensor) -> torch.Tensor:
            states = states.contiguous()
            out = states.new_empty(*states.shape[:-1], outputs, dtype=out_dtype)
            few_rows(
                states.data_ptr(), weight, offset, out.data_ptr(), states.numel() // inputs, inputs, outputs, in_bf16
            )
            return out

        return multiply
