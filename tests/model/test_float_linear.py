"""Layers of float32 models hold their weights in as few bits as they need, and compute what plain ones do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core_engine.config import EngineConfig
from core_engine.model.float_linear import FloatLinear, float_linears, unfloat_linears
from core_engine.model.load import Assembly
from core_engine.model.providers import kernels_for
from core_engine.model.quantized_linear import int8_refusal
from core_engine.model.weights import weight_bytes
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import run_mixed
from tests.model.loading import read_weights_of_mlp

PRODUCT = kernels_for("cpu", None).float_product

pytestmark = pytest.mark.skipif(PRODUCT is None, reason="no compiler to build kernels with")


def linear(inputs: int, outputs: int, *, bias: bool = False, like_bfloat16: bool = True) -> nn.Linear:
    torch.manual_seed(inputs)
    layer = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
    if like_bfloat16:
        layer.weight.data = layer.weight.bfloat16().float()
    return layer


@pytest.mark.parametrize(("like_bfloat16", "bytes_each"), [(True, 2), (False, 4)])
def test_weights_take_what_they_need_and_lose_nothing(like_bfloat16: bool, bytes_each: int) -> None:
    plain = linear(64, 96, bias=True, like_bfloat16=like_bfloat16)
    states = torch.randn(5, 64)
    expected = plain(states)
    model = nn.Sequential(plain)
    assert float_linears(model, PRODUCT) == 1
    assert weight_bytes(model) == bytes_each * 64 * 96 + 4 * 96
    assert torch.allclose(model(states), expected, atol=1e-6)


@pytest.mark.parametrize("like_bfloat16", [True, False])
def test_packing_is_undone_exactly(like_bfloat16: bool) -> None:
    plain = linear(64, 96, bias=True, like_bfloat16=like_bfloat16)
    model = nn.Sequential(plain)
    float_linears(model, PRODUCT)
    unfloat_linears(model)
    assert type(model[0]) is nn.Linear
    assert torch.equal(model[0].weight, plain.weight)
    assert model[0].bias is plain.bias


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_product_that_errs_is_not_used_and_told_once(is_refused: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        name = "wrong"

        def product(self, weight, scales, bias):  # type: ignore[no-untyped-def]
            return None if is_refused else lambda states: states.new_zeros(*states.shape[:-1], weight.shape[0])

    model = nn.Sequential(*(linear(32, 32) for _ in range(3)))
    assert float_linears(model, Wrong()) == 0
    assert model(torch.randn(1, 32)).norm() > 0
    (record,) = caplog.records
    assert "wrong is not used for 3 linear layers of 32 x 32" in record.message


def test_a_float32_model_has_its_layers_packed_and_answers_as_before() -> None:
    model = tiny_model("llama")
    assert run_mixed(model).deviation < 1e-4  # from transformers with plain layers
    assert any(isinstance(module, FloatLinear) for module in model.modules())


def test_a_model_that_reads_its_weights_by_itself_is_unpacked_again() -> None:
    model = tiny_model("llama")
    read_weights_of_mlp(model)
    Assembly(model, EngineConfig(dtype="float32", fuse=False))
    assert not any(isinstance(module, FloatLinear) for module in model.modules())


@pytest.mark.skipif(
    int8_refusal(torch.float32, torch.device("cpu")) is None, reason="this CPU multiplies eight-bit numbers"
)
def test_int8_weights_go_with_rows_in_float32() -> None:
    model = tiny_model("llama")
    weight, before = model.lm_head.weight, weight_bytes(model)
    Assembly(model, EngineConfig(dtype="float32", quantize="int8"))
    rounded = model.lm_head.unpacked().weight
    assert 0 < (rounded - weight).abs().max() < weight.abs().max() / 200
    assert weight_bytes(model) < before / 2
