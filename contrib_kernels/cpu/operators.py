"""CpuOperators: the fused operations between the products, in C++."""

from __future__ import annotations

from ctypes import byref

import torch

from contrib_kernels.cpu.library import Library, RotateCall, is_bf16, serves
from core_engine.model.kv_cache import KVCache
from core_engine.model.operators import ACTIVATIONS, JointHeads

MAX_SIZE = 1024  # elements of a head: what `rotate_head` leaves room for


class CpuOperators:
    """Operators for float32 and bfloat16 on the CPU: each reads and writes every element once, and rounds once."""

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def refusal(self, dtype: torch.dtype, device_type: str) -> str | None:
        """Serves the CPU's two formats."""
        if device_type != "cpu" or not serves(dtype):
            return f"it computes in float32 and bfloat16 on the CPU, not {dtype} on {device_type}"
        return None

    def rms_norm(self, states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """See Operators; `2 * itemsize` bytes and about 4 operations an element."""
        states = states.contiguous()
        width = states.shape[-1]
        normed = torch.empty_like(states)
        self._library.rms_norm(
            states.data_ptr(), None, weight.data_ptr(), normed.data_ptr(),
            states.numel() // width, width, epsilon, is_bf16(states.dtype),
        )  # fmt: skip
        return normed

    def add_rms_norm(
        self, states: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """See Operators; `2 * itemsize + 8` bytes and about 5 operations an element."""
        states = states.contiguous()
        width = states.shape[-1]
        normed = torch.empty_like(states)
        self._library.rms_norm(
            states.data_ptr(), residual.data_ptr(), weight.data_ptr(), normed.data_ptr(),
            states.numel() // width, width, epsilon, is_bf16(states.dtype),
        )  # fmt: skip
        return normed

    def gate(self, joint: torch.Tensor, activation: str) -> torch.Tensor:
        """See Operators; `3 * itemsize` bytes and about 20 operations an element of the result."""
        joint = joint.contiguous()
        width = joint.shape[-1] // 2
        gated = joint.new_empty(*joint.shape[:-1], width)
        self._library.gate(
            joint.data_ptr(), gated.data_ptr(), gated.numel() // width, width,
            ACTIVATIONS.index(activation), is_bf16(joint.dtype),
        )  # fmt: skip
        return gated

    def rotate_and_write(
        self,
        joint: torch.Tensor,
        heads: JointHeads,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        cache: KVCache,
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """See Operators; in place, `2 * itemsize` bytes and about 3 operations an element, 4 more with a norm.

        Raises ValueError for a head that there is no room for.
        """
        if not cosines.shape[1] <= heads.size <= MAX_SIZE:
            raise ValueError(
                f"{cosines.shape[1]} rotated elements of heads of {heads.size}, where there is room for {MAX_SIZE}"
            )
        call = RotateCall(
            joint.data_ptr(),
            joint.stride(0),
            cosines.data_ptr(),
            sines.data_ptr(),
            cosines.stride(0),
            None if heads.query_norm is None else heads.query_norm.data_ptr(),
            None if heads.key_norm is None else heads.key_norm.data_ptr(),
            cache.keys.data_ptr(),
            cache.values.data_ptr(),
            cache.keys.stride(0),
            cache.values.stride(0),
            slots.data_ptr(),
            joint.shape[0],
            heads.num_heads,
            heads.num_kv_heads,
            heads.size,
            cosines.shape[1],
            heads.norm_spans_heads,
            is_bf16(joint.dtype),
            heads.epsilon,
        )
        self._library.rotate_and_write(byref(call))
        return joint[:, : heads.num_heads * heads.size].unflatten(1, (heads.num_heads, heads.size))
