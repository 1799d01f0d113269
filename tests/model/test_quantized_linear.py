"""Layers with int8 weights compute what their rounded weights say, by themselves and in a model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import nn

from core_engine.config import EngineConfig
from core_engine.errors import ConfigurationError, ModelError
from core_engine.model.int8_rows import ZERO_POINT, ReferenceInt8Rows
from core_engine.model.load import Assembly, load_model
from core_engine.model.quantized_linear import (
    QuantizedLinear,
    int8_refusal,
    precise,
    quantize_linears,
    quantize_weight,
)
from core_engine.model.smoothing import input_peaks, smoothing_factors
from tests.equivalence.families import tiny_model
from tests.model.loading import read_weights_of_mlp

CPU = torch.device("cpu")
TEXT = Path(__file__).parent / "texts" / "jitneys.txt"
WINDOW_TOKENS = 512

needs_int8 = pytest.mark.skipif(
    int8_refusal(torch.bfloat16, CPU) is not None, reason="this CPU doesn't multiply eight-bit numbers"
)


def linear(inputs: int, outputs: int, *, bias: bool, dtype: torch.dtype = torch.bfloat16) -> nn.Linear:
    torch.manual_seed(inputs)
    return nn.Linear(inputs, outputs, bias=bias).to(dtype).requires_grad_(False)


def exact(layer: nn.Linear, states: torch.Tensor) -> torch.Tensor:
    """What the layer gives with its weight rounded, and nothing else."""
    weight, scales = quantize_weight(layer.weight)
    products = states.double() @ (weight.double() * scales.double().unsqueeze(-1)).T
    return products if layer.bias is None else products + layer.bias.double()


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def test_weights_are_rounded_by_output() -> None:
    weight = torch.tensor([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0], [3.0, 100.0, -127.0]])
    rounded, scales = quantize_weight(weight)
    assert rounded.tolist() == [[64, -127, 32], [0, 0, 0], [3, 100, -127]]
    assert torch.equal(scales, torch.tensor([1 / 127, 1.0, 1.0]))


def test_rows_are_rounded_each_by_itself_and_strange_ones_stay_strange() -> None:
    states = torch.tensor([[1.0, -0.5, 0.0], [0.0, 0.0, 0.0], [1.0, torch.nan, 0.0], [torch.inf, 1.0, 0.0]])
    quantized, scales = ReferenceInt8Rows().quantize(states)
    assert quantized[:2].tolist() == [[255, 64, 128], [ZERO_POINT] * 3]
    assert scales[:2].tolist() == pytest.approx([1 / 127, 0.0])
    assert scales[2:].isnan().all()


@needs_int8
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (7, 13), (130, 500)])
def test_products_are_those_of_the_rounded_weights(inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> None:
    plain = linear(inputs, outputs, bias=bias, dtype=dtype)
    with torch.inference_mode():
        layer = QuantizedLinear(plain, ReferenceInt8Rows(), dtype)
        for rows in (1, 20):
            states = torch.randn(1, rows, inputs).to(dtype)
            found = layer(states)
            assert found.dtype == dtype
            assert found.shape == (1, rows, outputs)
            assert difference(found, exact(plain, states)) < 0.015  # rows are rounded to one part in 254
            with precise(layer):
                assert difference(layer(states), exact(plain, states)) < (0.004 if dtype == torch.bfloat16 else 1e-4)


@needs_int8
def test_a_row_doesnt_depend_on_its_neighbours() -> None:
    layer = QuantizedLinear(linear(64, 96, bias=True), ReferenceInt8Rows(), torch.bfloat16)
    states = torch.randn(20, 64).to(torch.bfloat16)
    loud = states.clone()
    loud[1:] *= 1000
    with torch.inference_mode():
        assert torch.equal(layer(states)[0], layer(loud)[0])


@needs_int8
def test_what_is_large_in_the_rows_is_moved_into_the_weights() -> None:
    plain = linear(64, 96, bias=False)
    states = torch.randn(200, 64).to(torch.bfloat16)
    states[:, 3] *= 100
    peaks = states.abs().amax(0).float()
    expected = states.double() @ plain.weight.double().T
    with torch.inference_mode():
        rough, smooth = (
            difference(QuantizedLinear(plain, ReferenceInt8Rows(), torch.bfloat16, each)(states), expected)
            for each in (None, peaks)
        )
    assert smooth < rough / 2


def test_factors_of_inputs_that_are_never_seen_or_weighed_are_harmless() -> None:
    weight, peaks = torch.ones(4, 3), torch.tensor([0.0, 1.0, 9.0])
    weight[:, 2] = 0.0
    factors = smoothing_factors(peaks, weight)
    assert factors[2] == 1.0
    assert 0.01 < factors[0] < factors[1] < 100


@needs_int8
def test_peaks_of_every_layer_are_found_in_a_model() -> None:
    model = tiny_model("llama")
    peaks = input_peaks(model)
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    assert set(peaks) == set(layers)
    assert all(peaks[layer].shape == (layer.in_features,) for layer in layers)


@needs_int8
def test_weights_of_a_model_take_half_the_memory_and_its_embeddings_stay() -> None:
    model = nn.Sequential(nn.Embedding(50, 576), linear(576, 1536, bias=False)).to(torch.bfloat16)
    assert quantize_linears(model) == 1
    assert isinstance(model[1], QuantizedLinear)
    assert model[1].packed_bytes < 0.55 * 2 * 576 * 1536
    assert model[0].weight.dtype == torch.bfloat16


@needs_int8
def test_a_model_that_reads_its_weights_by_itself_is_refused() -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    read_weights_of_mlp(model)
    with pytest.raises(ModelError, match="can't be quantised"):
        Assembly(model, EngineConfig(quantize="int8", kernels=("torch",)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "CPUs alone"),
        ({"dtype": "float16"}, "not with float16"),
    ],
)
def test_what_it_doesnt_go_with_is_refused_at_start(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EngineConfig(quantize="int8", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "kernels"), [(torch.bfloat16, None), (torch.float32, ("torch",))], ids=["bfloat16", "without kernels"]
)
def test_a_processor_without_it_is_told(
    dtype: torch.dtype, kernels: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    with pytest.raises(ModelError, match="neither AVX-512 VNNI nor AMX"):
        Assembly(tiny_model("llama", dtype=dtype), EngineConfig(quantize="int8", kernels=kernels))


@pytest.mark.full
def test_the_default_model_loses_little(smollm2_directory: Path) -> None:
    plain, quantized = (_perplexity(smollm2_directory, EngineConfig(quantize=each)) for each in (None, "int8"))
    change = quantized / plain - 1
    print(f"perplexity {plain:.3f}, with int8 {quantized:.3f}: {change:+.2%}")
    assert change < 0.02


@torch.inference_mode()
def _perplexity(directory: Path, config: EngineConfig) -> float:
    tokens = Tokenizer.from_file(str(directory / "tokenizer.json")).encode(TEXT.read_text(encoding="utf-8")).ids
    model = load_model(config, directory)
    Assembly(model, config)
    model.set_attn_implementation("eager")
    loss = 0.0
    for first in range(0, len(tokens) - 1, WINDOW_TOKENS):
        window = torch.tensor(tokens[first : first + WINDOW_TOKENS + 1])
        logits = model(input_ids=window[None, :-1], use_cache=False).logits[0].float()
        loss += float(nn.functional.cross_entropy(logits, window[1:], reduction="sum"))
    return math.exp(loss / (len(tokens) - 1))
