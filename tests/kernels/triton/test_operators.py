"""Fused operators in Triton against the same in float64, as those of the CPU."""

from __future__ import annotations

import pytest
import torch

from contrib_kernels.triton.operators import TritonOperators
from core_engine.model.operators import ACTIVATIONS
from tests.kernels.exact_operators import (
    assert_near,
    assert_rotates_and_writes,
    gate_exactly,
    norm_exactly,
    random,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
OPERATORS = TritonOperators()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 64, 577])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rms_norm(device: torch.device, rows: int, width: int, dtype: torch.dtype) -> None:
    states, weight = random(1, rows, width, dtype=dtype, device=device), random(width, seed=1, device=device)
    assert_near(OPERATORS.rms_norm(states, weight, 1e-5), norm_exactly(states, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm(device: torch.device, dtype: torch.dtype) -> None:
    states, residual = random(5, 72, dtype=dtype, device=device), random(5, 72, seed=1, device=device)
    weight = random(72, seed=2, device=device)
    total = residual.clone()
    normed = OPERATORS.add_rms_norm(states, total, weight, 1e-5)
    assert normed.dtype == dtype
    assert torch.equal(total, states.float() + residual)
    assert_near(normed, norm_exactly(total, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [1, 577, 1536])
def test_gate(device: torch.device, width: int, activation: str, dtype: torch.dtype) -> None:
    joint = random(1, 4, 2 * width, dtype=dtype, device=device)
    joint[0, 0, :width] = 100.0
    joint[0, 1, :width] = -100.0
    assert_near(OPERATORS.gate(joint, activation), gate_exactly(joint, activation))
    assert OPERATORS.gate(joint[:, :0], activation).shape == (1, 0, width)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "rotary_size"), [(16, 16), (24, 8), (80, 40), (256, 256)])
@pytest.mark.parametrize("norm", ["none", "heads", "all"])
@pytest.mark.parametrize("num_tokens", [0, 5])
def test_rotate_and_write(
    device: torch.device, num_tokens: int, norm: str, size: int, rotary_size: int, dtype: torch.dtype
) -> None:
    assert_rotates_and_writes(OPERATORS, num_tokens, norm, size, rotary_size, dtype, device)


def test_what_they_refuse() -> None:
    assert OPERATORS.refusal(torch.bfloat16, "cuda") is None
    assert "float64" in (OPERATORS.refusal(torch.float64, "cuda") or "")
    assert "cpu" in (OPERATORS.refusal(torch.bfloat16, "cpu") or "")
