"""Rows to and from eight bits in C++ against torch, and the int8 product of few rows against float64."""

from __future__ import annotations

import pytest
import torch

from contrib_kernels.cpu.int8 import CpuInt8Rows
from contrib_kernels.cpu.library import Library
from core_engine.model.int8_rows import ReferenceInt8Rows
from core_engine.model.quantized_linear import QuantizedLinear, int8_refusal, quantize_weight
from core_engine.model.smoothing import smoothing_factors
from tests.kernels.exact_operators import assert_near, random

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 7), (5, 576), (70, 300)])
def test_quantize(library: Library, rows: int, size: int, dtype: torch.dtype) -> None:
    states = random(1, rows, size, dtype=dtype)
    factors = random(size, seed=1).abs() + 0.5
    found, scales = CpuInt8Rows(library).quantize(states, factors)
    expected, expected_scales = ReferenceInt8Rows().quantize(states, factors)
    assert torch.allclose(scales, expected_scales, rtol=1e-6)
    assert (found.int() - expected.int()).abs().max() <= 1  # halves, rounded from products a bit apart
    restored = (found.float() - 128) * scales[:, None]
    assert ((restored - states[0].float() * factors).abs() <= 0.501 * scales[:, None]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_strange_rows(library: Library, dtype: torch.dtype) -> None:
    states = random(5, 40, dtype=dtype)
    states[0], states[1, 39], states[2, 0], states[3] = 0.0, torch.nan, -torch.inf, 1e-40
    found, scales = CpuInt8Rows(library).quantize(states)
    assert found[0].eq(128).all()
    assert scales[0] == 0
    assert scales[1:3].isnan().all()
    assert scales[3:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias_dtype", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [13, 128])
def test_rescale(library: Library, size: int, bias_dtype: torch.dtype | None, dtype: torch.dtype) -> None:
    if (dtype, bias_dtype) == (torch.bfloat16, torch.float32):
        pytest.skip("a bfloat16 layer has a bfloat16 bias")
    products, scales = random(9, size, dtype=dtype), random(9, seed=1)
    bias = None if bias_dtype is None else random(size, seed=2, dtype=bias_dtype)
    expected = products.double() * scales.double()[:, None] + (0 if bias is None else bias.double())
    CpuInt8Rows(library).rescale(products, scales, bias)
    assert_near(products, expected)


@pytest.mark.skipif(
    int8_refusal(torch.float32, torch.device("cpu")) is not None, reason="this CPU doesn't multiply eight-bit numbers"
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (7, 13), (130, 497), (576, 960)])
def test_few_rows(library: Library, inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Linear(inputs, outputs, bias=bias).to(dtype).requires_grad_(False)
    kernels = CpuInt8Rows(library)
    with torch.inference_mode():
        peaks = random(inputs, seed=2).abs() + 1
        factors = smoothing_factors(peaks, plain.weight)
        weight, scales = quantize_weight(plain.weight * factors)
        layer = QuantizedLinear(plain, kernels, torch.float32, peaks)
        assert (layer._few_rows is not None) == library.has_few_rows_int8
        for rows in range(10):
            states = random(1, rows, inputs, dtype=dtype)
            quantized, row_scales = kernels.quantize(states, 1.0 / factors)
            exact = (quantized.double() - 128) * row_scales.double()[:, None]
            exact = exact @ (weight.double() * scales.double()[:, None]).T
            if bias:
                exact += plain.bias.double()
            found = layer(states)
            assert found.shape == (1, rows, outputs)
            if library.has_few_rows_int8 and 0 < rows <= kernels.max_rows:
                assert found.dtype == torch.float32
                assert torch.allclose(found[0].double(), exact, rtol=1e-5, atol=1e-5)
            assert torch.allclose(found[0].double(), exact, rtol=0.01, atol=0.02)
