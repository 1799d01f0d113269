"""TritonOperators: the fused operations between the products, on the GPU."""

from __future__ import annotations

import torch
from triton import cdiv, next_power_of_2

from contrib_kernels.triton.operator_kernels import gate_rows, norm_rows
from contrib_kernels.triton.settings import FORMATS, FUSED_MULTIPLY_ADD
from contrib_kernels.triton.slot_kernels import rotate_to_slots
from core_engine.model.kv_cache import KVCache
from core_engine.model.operators import JointHeads

_GATE_WIDTH = 1024  # elements that a program gates
_WARP_ELEMENTS = 512  # elements that a warp has in registers, 16 a thread


class TritonOperators:
    """Operators for float32, bfloat16 and float16 on CUDA, one launch each; their kernels say what they cost."""

    name = "triton"

    def refusal(self, dtype: torch.dtype, device_type: str) -> str | None:
        """Serves CUDA's three formats."""
        if device_type != "cuda" or dtype not in FORMATS:
            return f"it computes in float32, bfloat16 and float16 on NVIDIA GPUs, not {dtype} on {device_type}"
        return None

    def rms_norm(self, states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """See Operators."""
        states = states.contiguous()
        normed = torch.empty_like(states)
        _norm(states, None, weight, normed, epsilon)
        return normed

    def add_rms_norm(
        self, states: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """See Operators."""
        states = states.contiguous()
        normed = torch.empty_like(states)
        _norm(states, residual, weight, normed, epsilon)
        return normed

    def gate(self, joint: torch.Tensor, activation: str) -> torch.Tensor:
        """See Operators."""
        joint = joint.contiguous()
        width = joint.shape[-1] // 2
        gated = joint.new_empty(*joint.shape[:-1], width)
        if gated.numel():
            grid = (gated.numel() // width, cdiv(width, _GATE_WIDTH))
            gate_rows[grid](joint, gated, width, activation, _GATE_WIDTH, **FUSED_MULTIPLY_ADD)
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
        """See Operators."""
        num_tokens = joint.shape[0]
        query = joint.new_empty(num_tokens, heads.num_heads, heads.size)
        if not num_tokens:
            return query
        num_heads_width, num_kv_heads_width, width = map(
            next_power_of_2, (heads.num_heads, heads.num_kv_heads, heads.size)
        )
        rotate_to_slots[(num_tokens, 3)](
            joint, joint.stride(0),
            cosines, sines, cosines.stride(0),
            heads.query_norm, heads.key_norm, heads.epsilon,
            query,
            cache.keys, cache.keys.stride(0),
            cache.values, cache.values.stride(0),
            slots,
            heads.num_heads, heads.num_kv_heads, heads.size, cosines.shape[1], heads.norm_spans_heads,
            num_heads_width, num_kv_heads_width, width,
            num_warps=_warps(num_heads_width * width), **FUSED_MULTIPLY_ADD,
        )  # fmt: skip
        return query


def _norm(
    states: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    normed: torch.Tensor,
    epsilon: float,
) -> None:
    width = states.shape[-1]
    padded_width = next_power_of_2(width)
    if states.numel():
        norm_rows[(states.numel() // width,)](
            states, residual, weight, normed, width, epsilon, padded_width,
            num_warps=_warps(padded_width), **FUSED_MULTIPLY_ADD,
        )  # fmt: skip


def _warps(elements: int) -> int:
    """Warps of a program that holds so many elements at once: a power of two."""
    return max(1, min(16, elements // _WARP_ELEMENTS))
