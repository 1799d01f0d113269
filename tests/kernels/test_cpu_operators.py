"""Fused operators against the same in torch with float64 inputs, and the product of few rows against oneDNN's."""

from __future__ import annotations

import math

import pytest
import torch

from contrib_kernels.cpu.best import CpuBestTokens
from contrib_kernels.cpu.library import Library
from contrib_kernels.cpu.operators import CpuOperators
from contrib_kernels.cpu.packing import Packing
from contrib_kernels.cpu.rows import FewRows
from core_engine.model.greedy import best_tokens, chooser
from core_engine.model.kv_cache import KVCache
from core_engine.model.operators import ACTIVATIONS, JointHeads, ReferenceOperators
from core_engine.model.packed_linear import PackedLinear, can_pack, pack_linears
from tests.kernels.exact_operators import (
    assert_near,
    assert_rotates_and_writes,
    gate_exactly,
    norm_exactly,
    random,
)

DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = [1, 7, 16, 64, 577]


@pytest.fixture
def operators(library: Library) -> CpuOperators:
    return CpuOperators(library)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [0, 1, 3, 200])
def test_rms_norm(operators: CpuOperators, rows: int, width: int, dtype: torch.dtype) -> None:
    states, weight = random(1, rows, width, dtype=dtype), random(width, seed=1)
    assert_near(operators.rms_norm(states, weight, 1e-5), norm_exactly(states, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm(operators: CpuOperators, dtype: torch.dtype) -> None:
    states, residual, weight = random(5, 72, dtype=dtype), random(5, 72, seed=1), random(72, seed=2)
    total = residual.clone()
    normed = operators.add_rms_norm(states, total, weight, 1e-5)
    assert normed.dtype == dtype
    assert torch.equal(total, states.float() + residual)
    assert_near(normed, norm_exactly(total, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [*WIDTHS, 1536])
def test_gate(operators: CpuOperators, width: int, activation: str, dtype: torch.dtype) -> None:
    joint = random(1, 11, 2 * width, dtype=dtype)
    joint[0, 0, :width] = 100.0
    joint[0, 1, :width] = -100.0
    assert_near(operators.gate(joint, activation), gate_exactly(joint, activation))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "rotary_size"), [(16, 16), (64, 64), (24, 8), (80, 40), (256, 256)])
@pytest.mark.parametrize("norm", ["none", "heads", "all"])
@pytest.mark.parametrize("num_tokens", [0, 1, 40])
def test_rotate_and_write(
    operators: CpuOperators, num_tokens: int, norm: str, size: int, rotary_size: int, dtype: torch.dtype
) -> None:
    assert_rotates_and_writes(operators, num_tokens, norm, size, rotary_size, dtype)


@pytest.mark.parametrize(("size", "rotary_size"), [(1025, 64), (4096, 4096), (64, 128)])
def test_heads_that_there_is_no_room_for_are_refused(operators: CpuOperators, size: int, rotary_size: int) -> None:
    heads = JointHeads(1, 1, size)
    cache = KVCache(*(torch.zeros(1, 1, 16, size) for _ in range(2)))
    angles = torch.zeros(2, rotary_size)
    with pytest.raises(ValueError, match=f"{rotary_size} rotated elements of heads of {size}"):
        operators.rotate_and_write(torch.zeros(2, 3 * size), heads, angles, angles, cache, torch.arange(2))


@pytest.mark.parametrize("size", [1024, 1023])
def test_the_largest_heads(operators: CpuOperators, size: int) -> None:
    heads, joint = JointHeads(1, 1, size), random(2, 3 * size)
    angles = random(2, 256, seed=1).repeat(1, 2)
    caches = [KVCache(*(torch.zeros(1, 1, 16, size) for _ in range(2))) for _ in range(2)]
    found, expected = (
        each.rotate_and_write(joint.clone(), heads, angles.cos(), angles.sin(), cache, torch.arange(2))
        for each, cache in zip((operators, ReferenceOperators()), caches, strict=True)
    )
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert torch.allclose(caches[0].keys, caches[1].keys, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not can_pack(torch.bfloat16, torch.device("cpu")), reason="this CPU packs no bfloat16")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (96, 64), (14, 13), (7, 64), (130, 497), (576, 1536)])
def test_few_rows(library: Library, inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> None:
    if not library.has_few_rows:
        pytest.skip("not for this instruction set")
    torch.manual_seed(0)
    linear = torch.nn.Linear(inputs, outputs, bias=bias).to(torch.bfloat16).requires_grad_(False)
    with torch.inference_mode():
        layer = PackedLinear(linear, FewRows(library), dtype)
        if outputs >= 64:  # some processors have smaller weights packed in another way
            assert (layer._few_rows is None) == (inputs % 2 == 1)
        for rows in range(10):
            states = random(1, rows, inputs, dtype=torch.bfloat16)
            exact = states.double() @ linear.weight.double().T
            if bias:
                exact += linear.bias.double()
            found = layer(states)
            assert found.shape == (1, rows, outputs)
            if layer._few_rows is not None and 0 < rows <= 8:
                assert found.dtype == dtype
                assert dtype != torch.float32 or torch.allclose(found.double(), exact, rtol=1e-4, atol=1e-4)
            assert ((found.double() - exact).abs() <= 2.0**-8 * exact.abs() + 1e-2).all()


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("block_outputs", [16, 32, 48, 64])
def test_few_rows_of_every_packing(library: Library, block_outputs: int, rows: int) -> None:
    if not library.has_few_rows:
        pytest.skip("not for this instruction set")
    inputs, outputs = 38, 150
    states, weight = random(rows, inputs, dtype=torch.bfloat16), random(outputs, inputs, seed=1, dtype=torch.bfloat16)
    packing = Packing(block_outputs, padded_inputs=64)
    padded = torch.zeros(-(-outputs // block_outputs) * block_outputs, packing.padded_inputs, dtype=torch.bfloat16)
    padded[:outputs, :inputs] = weight
    packed = padded.view(-1, block_outputs, packing.padded_inputs // 2, 2).transpose(1, 2).contiguous()
    assert torch.equal(packing.row(packed.flatten(), outputs - 1), padded[outputs - 1])
    found = torch.full((rows, outputs), torch.nan)
    library.few_rows(
        *(states.data_ptr(), packed.data_ptr(), None, found.data_ptr()), *(rows, inputs, outputs, *packing, 0)
    )
    assert torch.allclose(found, states.float() @ weight.float().T, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not can_pack(torch.bfloat16, torch.device("cpu")), reason="this CPU packs no bfloat16")
def test_a_product_that_differs_is_not_used_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        name, max_rows = "wrong", 4

        def product(self, packed_weight, weight, bias, out_dtype):  # type: ignore[no-untyped-def]
            return lambda states: states.new_zeros(*states.shape[:-1], weight.shape[0])

    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(3))).to(torch.bfloat16).requires_grad_(False)
    pack_linears(model, Wrong())
    states = random(1, 32, dtype=torch.bfloat16)
    assert model(states).norm() > 0
    (record,) = caplog.records
    assert "3 linear layers of 32 x 32: gives other results than oneDNN does" in record.message


# The greedy choice.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 15, 16, 1024, 5000])
def test_best_tokens(library: Library, width: int, dtype: torch.dtype) -> None:
    logits = random(9, width + 3, dtype=dtype)[:, :width]  # rows with something between them
    logits[1], logits[2], logits[3] = -1.0, -math.inf, math.nan
    logits[4, -1], logits[5, -1], logits[6, 0], logits[7, 0] = math.inf, math.nan, math.nan, 100.0
    logits[8, -1] = logits[8, width // 2] = 100.0  # the first of equals
    found = CpuBestTokens(library)(logits)
    assert torch.equal(found, best_tokens(logits))
    assert found[1:7].tolist() == [0, -1, -1, -1, -1, -1]
    assert found[7:].tolist() == [0, width // 2]


def test_best_tokens_of_no_rows(library: Library) -> None:
    assert CpuBestTokens(library)(torch.zeros(0, 8)).tolist() == []


def test_a_choice_that_differs_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        name = "wrong"

        def refusal(self, dtype: torch.dtype) -> None:
            return None

        def __call__(self, logits: torch.Tensor) -> torch.Tensor:
            return logits.argmax(-1)

    assert chooser(Wrong(), torch.device("cpu")) is best_tokens
    assert "wrong chooses other tokens than torch" in caplog.text
