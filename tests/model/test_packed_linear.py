"""Packed linear layers compute what plain ones do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from core_engine.config import EngineConfig
from core_engine.model.load import Assembly, load_model
from core_engine.model.packed_linear import PackedLinear, can_pack, pack_linears, unpack_linears
from core_engine.model.weights import weight_bytes
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import run_mixed
from tests.model.loading import read_weights_of_mlp

CPU = torch.device("cpu")

needs_bfloat16 = pytest.mark.skipif(not can_pack(torch.bfloat16, CPU), reason="this CPU packs no bfloat16")


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    torch.manual_seed(inputs)
    return nn.Linear(inputs, outputs, bias=bias).to(torch.bfloat16).requires_grad_(False)


@needs_bfloat16
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (96, 64), (7, 13), (576, 1536)])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_same_products(inputs: int, outputs: int, rows: int, bias: bool) -> None:
    plain = linear(inputs, outputs, bias=bias)
    states = torch.randn(1, rows, inputs).to(torch.bfloat16)
    exact = states.double() @ plain.weight.double().T
    if bias:
        exact += plain.bias.double()
    with torch.inference_mode():
        packed = PackedLinear(plain)(states)
        assert packed.dtype == torch.bfloat16
        assert packed.shape == (1, rows, outputs)
        rounding = 2.0**-8 * exact.abs() + 1e-2
        assert ((packed.double() - exact).abs() <= rounding).all()


@needs_bfloat16
def test_packing_is_undone_exactly() -> None:
    plain = linear(64, 96, bias=True)
    weight = plain.weight.clone()
    model = nn.Sequential(plain, nn.ReLU())
    assert pack_linears(model) == 1
    assert isinstance(model[0], PackedLinear)
    unpack_linears(model)
    assert torch.equal(model[0].weight, weight)
    assert model[0].bias is not None


@needs_bfloat16
def test_packed_weights_are_not_held_twice() -> None:
    model = nn.Sequential(linear(64, 96, bias=False))
    pack_linears(model)
    assert [parameter.dim() for parameter in model.parameters()] == []


@needs_bfloat16
def test_what_weights_take_is_known_packed_or_not() -> None:
    first = linear(576, 1536, bias=True)
    model = nn.Sequential(first, nn.ReLU(), linear(1536, 576, bias=False), first)  # one of them twice
    before = weight_bytes(model)
    assert before == 2 * (2 * 576 * 1536 + 1536)
    pack_linears(model[:3])
    model[3] = model[0]
    assert before <= weight_bytes(model) <= 1.3 * before


@needs_bfloat16
def test_a_packed_model_keeps_nothing_of_its_file(tmp_path: Path) -> None:
    tiny_model("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    config = EngineConfig(model=str(tmp_path), dtype="bfloat16")
    model = load_model(config, tmp_path)
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    assembly = Assembly(model, config)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert assembly.model.model.embed_tokens.weight.detach().isfinite().all()


def test_other_formats_are_left_alone() -> None:
    assert not can_pack(torch.float32, CPU)
    assert not can_pack(torch.float16, CPU)


@needs_bfloat16
def test_a_model_that_reads_its_weights_by_itself_is_unpacked_again() -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    projection = model.model.layers[0].mlp.gate_proj
    read_weights_of_mlp(model)
    assert run_mixed(model).deviation < 0.6
    assert type(model.model.layers[0].mlp.gate_proj) is type(projection)
