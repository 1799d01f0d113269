"""Packing: how oneDNN has laid out a weight in memory, found by looking."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch

from contrib_kernels.cpu.library import WEIGHT_FORMATS, LinearLayer

_LANES = 16
_BLOCKS = (64, 48, 32, 16)  # outputs; which of them depends on the processor
_WORD_BYTES = 4


class Packing(NamedTuple):
    """A weight as `[blocks of outputs][words of inputs][outputs of a block][inputs of a word]`, padded with zeros.

    A word is two bfloat16 or four int8. oneDNN says nowhere what it chose, and chooses by the processor: for
    bfloat16, AVX-512 has blocks of 64 outputs, AMX of 32.
    """

    block_outputs: int
    padded_inputs: int

    def row(self, packed: torch.Tensor, output: int) -> torch.Tensor:
        """The weights `[padded_inputs]` of one output, from all elements as they lie in memory."""
        block, place = divmod(output, self.block_outputs)
        size = self.block_outputs * self.padded_inputs
        words = packed[block * size : (block + 1) * size].view(-1, self.block_outputs, _WORD_BYTES // packed.itemsize)
        return words[:, place].flatten()


def find_packing(packed_weight: torch.Tensor, weight: torch.Tensor) -> Packing | None:
    """How bfloat16 or int8 `weight` `[outputs, inputs]` lies in what oneDNN made of it; None where it isn't in words.

    Compares the first output of every vector up to the second of the largest blocks, their neighbours and the last.
    """
    outputs, inputs = weight.shape
    integers = torch.int16 if weight.itemsize == 2 else torch.int8
    memory_bytes = torch.ops.mkldnn._nbytes(packed_weight)
    elements = _elements(packed_weight, memory_bytes, integers)
    wanted = weight.detach().view(integers)
    samples = sorted({0, 1, *range(0, 2 * _BLOCKS[0], _LANES), outputs - 1} & set(range(outputs)))
    for block_outputs in _BLOCKS:
        padded_outputs = -(-outputs // block_outputs) * block_outputs
        # An int8 weight is followed by an int32 of each output, the sum of its weights.
        beside = 4 if integers is torch.int8 else 0
        padded_inputs, rest = divmod(memory_bytes - beside * padded_outputs, padded_outputs * weight.itemsize)
        if rest or padded_inputs * weight.itemsize % _WORD_BYTES or padded_inputs < inputs:
            continue
        packing = Packing(block_outputs, padded_inputs)
        if all(torch.equal(packing.row(elements, output)[:inputs], wanted[output]) for output in samples):
            return packing
    return None


def packed_layer(packed_weight: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearLayer | None:
    """The layer where it lies, as the library takes it; None where `find_packing` finds nothing."""
    packing = find_packing(packed_weight, weight)
    if packing is None:
        return None
    outputs, inputs = weight.shape
    return LinearLayer(
        weight=torch.ops.mkldnn.data_ptr(packed_weight),
        bias=None if bias is None else bias.data_ptr(),
        inputs=inputs,
        outputs=outputs,
        block_outputs=packing.block_outputs,
        padded_inputs=packing.padded_inputs,
        format=WEIGHT_FORMATS[weight.dtype],
    )


def _elements(packed_weight: torch.Tensor, memory_bytes: int, dtype: torch.dtype) -> torch.Tensor:
    memory = (ctypes.c_char * memory_bytes).from_address(torch.ops.mkldnn.data_ptr(packed_weight))
    return torch.frombuffer(memory, dtype=dtype)
