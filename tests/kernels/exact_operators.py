"""What fused operators must give: in float64, or in torch where the operation is many."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from core_engine.model.kv_cache import KVCache
from core_engine.model.operators import JointHeads, Operators, ReferenceOperators

CPU = torch.device("cpu")
# Half a unit in the last place, or a few of float32.
_ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# Of a sum of two products.
_TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 0.03, torch.float16: 4e-3}


def random(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0, device: torch.device = CPU) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).mul_(2).to(device, dtype)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    difference = (found.double() - expected).abs()
    assert (difference <= _ROUNDING[found.dtype] * expected.abs() + 2e-6).all()


def norm_exactly(states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    exact = states.double()
    return exact / (exact.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight.double()


def gate_exactly(joint: torch.Tensor, activation: str) -> torch.Tensor:
    left, right = joint.double().chunk(2, -1)
    if activation == "silu":
        return functional.silu(left) * right
    return functional.gelu(left, approximate="tanh" if activation == "gelu_tanh" else "none") * right


def assert_rotates_and_writes(
    operators: Operators,
    num_tokens: int,
    norm: str,
    size: int,
    rotary_size: int,
    dtype: torch.dtype,
    device: torch.device = CPU,
) -> None:
    """`norm` is "none", "heads" or "all"; slots are scattered over a poisoned cache."""
    num_heads, num_kv_heads = 6, 2
    heads = JointHeads(num_heads, num_kv_heads, size)
    if norm != "none":
        spans = norm == "all"
        widths = (num_heads * size, num_kv_heads * size) if spans else (size, size)
        weights = (random(width, seed=seed, device=device) for seed, width in enumerate(widths))
        heads = JointHeads(num_heads, num_kv_heads, size, *weights, spans, 1e-6)
    joint = random(num_tokens, (num_heads + 2 * num_kv_heads) * size, dtype=dtype, seed=2, device=device)
    angles = random(num_tokens, rotary_size // 2, seed=3, device=device).repeat(1, 2) * 3
    cosines, sines = angles.cos().to(dtype), angles.sin().to(dtype)
    slots = torch.randperm(64, generator=torch.Generator().manual_seed(4))[:num_tokens].to(device)
    caches = [
        KVCache(*(torch.full((num_kv_heads, 4, 16, size), math.nan, dtype=kind, device=device) for _ in range(2)))
        for kind in (dtype, torch.float32)
    ]
    found = operators.rotate_and_write(joint.clone(), heads, cosines, sines, caches[0], slots)
    expected = ReferenceOperators().rotate_and_write(
        joint.float(), heads, cosines.float(), sines.float(), caches[1], slots
    )
    for mine, theirs in ((found, expected), (caches[0].keys, caches[1].keys), (caches[0].values, caches[1].values)):
        assert torch.equal(mine.isnan(), theirs.isnan())
        difference = (mine.float() - theirs).nan_to_num().abs()
        assert (difference <= _TOLERANCES[dtype] * (1 + theirs.nan_to_num().abs())).all()
