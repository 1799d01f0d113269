"""Fused operations between the products of a layer: what they are, and what they are in torch.

All compute in float32 and round once, to the format of their input. Sizes in bytes and numbers of
operations depend on the implementation, which says them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from core_engine.model.kv_cache import KVCache

ACTIVATIONS = ("silu", "gelu_tanh", "gelu")


@dataclass(frozen=True, slots=True)
class JointHeads:
    """What one product for queries, keys and values gives: `[tokens, (num_heads + 2 * num_kv_heads) * size]`.

    Queries come first, then keys, then values, each head by head. Norms, where there are any, are
    float32 weights of one head, or of all heads together where `norm_spans_heads`.
    """

    num_heads: int
    num_kv_heads: int
    size: int
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None
    norm_spans_heads: bool = False
    epsilon: float = 0.0


class Operators(Protocol):
    """Fused operations. Called on the engine thread; what they return is theirs no longer."""

    name: str

    def refusal(self, dtype: torch.dtype, device_type: str) -> str | None:
        """Why these can't serve such a model; None where they can."""
        ...

    def rms_norm(self, states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """`states / rms(states) * weight`, over the last dimension; `weight` is float32 `[width]`."""
        ...

    def add_rms_norm(
        self, states: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """Add `states` to the residual, which is float32 and contiguous, in place; the same of the sum."""
        ...

    def gate(self, joint: torch.Tensor, activation: str) -> torch.Tensor:
        """`activation(first half) * second half` of the last dimension; `activation` is one of ACTIVATIONS."""
        ...

    def rotate_and_write(
        self,
        joint: torch.Tensor,
        heads: JointHeads,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        cache: KVCache,
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """Norm and rotate queries and keys, store keys and values; returns queries `[tokens, num_heads, size]`.

        These may lie where they were in `joint`, whose numbers nobody needs any longer.
        `joint` is as JointHeads says, its last dimension contiguous. Angles are `[tokens, rotary size]`
        in its format, at most `size`, of which the second half belongs to the second half of the
        rotated elements; what is beyond is passed on. `slots` are int64, one a token.
        """
        ...


class ReferenceOperators:
    """Operators in plain torch: any format, any device."""

    name = "torch"

    def refusal(self, dtype: torch.dtype, device_type: str) -> str | None:
        """Serves everything."""
        return None

    def rms_norm(self, states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """See Operators."""
        return _norm(states.float(), weight, epsilon).to(states.dtype)

    def add_rms_norm(
        self, states: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """See Operators."""
        return _norm(residual.add_(states), weight, epsilon).to(states.dtype)

    def gate(self, joint: torch.Tensor, activation: str) -> torch.Tensor:
        """See Operators."""
        left, right = joint.float().chunk(2, dim=-1)
        if activation == "silu":
            activated = functional.silu(left)
        else:
            activated = functional.gelu(left, approximate="tanh" if activation == "gelu_tanh" else "none")
        return (activated * right).to(joint.dtype)

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
        widths = [count * heads.size for count in (heads.num_heads, heads.num_kv_heads, heads.num_kv_heads)]
        query, key, value = joint.split(widths, dim=-1)
        query, key = (
            _rotate(_norm_heads(states, weight, heads), cosines, sines)
            for states, weight in ((query, heads.query_norm), (key, heads.key_norm))
        )
        value = value.unflatten(-1, (-1, heads.size))
        cache.store(slots, key.to(joint.dtype).transpose(0, 1), value.transpose(0, 1))
        return query.to(joint.dtype)


def _norm(states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + epsilon) * weight


def _norm_heads(states: torch.Tensor, weight: torch.Tensor | None, heads: JointHeads) -> torch.Tensor:
    """Float32 `[tokens, heads, size]`, normed where there is a weight."""
    states = states.float()
    if weight is not None and heads.norm_spans_heads:
        states = _norm(states, weight, heads.epsilon)
    states = states.unflatten(-1, (-1, heads.size))
    if weight is not None and not heads.norm_spans_heads:
        states = _norm(states, weight, heads.epsilon)
    return states


def _rotate(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    rotary_size = cosines.shape[-1]
    rotated, rest = states[..., :rotary_size], states[..., rotary_size:]
    low, high = rotated.chunk(2, dim=-1)
    turned = torch.cat((-high, low), dim=-1)
    rotated = rotated * cosines.float().unsqueeze(1) + turned * sines.float().unsqueeze(1)
    return torch.cat((rotated, rest), dim=-1)
