"""Fuse, probe, keep or revert: which modules give way, which stay and why, and kernels of other packages."""

from __future__ import annotations

import importlib.metadata
import logging
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.errors import ModelError
from core_engine.model import providers
from core_engine.model.fused import FusedAttention, FusedGatedMLP, FusedLayer, FusedNorm
from core_engine.model.kernels import KernelRegistry
from core_engine.model.load import Assembly
from core_engine.model.operators import ReferenceOperators
from core_engine.model.reference import ReferenceAttention
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import build_executor, lone_logits, run_mixed, token_ids

TORCH = {"kernels": ("torch",)}


def count(model: Any, kind: type) -> int:
    return sum(isinstance(module, kind) for module in model.modules())


@pytest.mark.parametrize(
    ("model_type", "norms", "attentions", "mlps", "layers"),
    [
        ("llama", 7, 3, 3, 3),
        ("mistral", 7, 3, 3, 3),
        ("qwen2", 7, 3, 3, 3),
        ("qwen3", 7, 3, 3, 3),
        ("gemma", 7, 3, 3, 3),
        ("smollm3", 7, 0, 3, 3),
        ("exaone4", 13, 0, 3, 3),
        ("granitemoe", 7, 3, 0, 3),
        ("gemma2", 13, 3, 3, 3),
        ("gemma3_text", 13, 3, 3, 3),
        ("phi3", 7, 3, 3, 3),
        ("granite", 7, 3, 3, 3),
        ("olmo2", 7, 3, 3, 3),
        ("mixtral", 7, 3, 0, 3),
        ("qwen3_moe", 7, 3, 0, 3),
        ("qwen2_moe", 7, 3, 3, 3),
    ],
)
def test_what_is_fused(
    model_type: str, norms: int, attentions: int, mlps: int, layers: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(model_type)
    with caplog.at_level(logging.INFO, logger="jitney.model"):
        build_executor(model, **TORCH)
    kinds = (FusedNorm, FusedAttention, FusedGatedMLP, FusedLayer)
    assert [count(model, kind) for kind in kinds] == [norms, attentions, mlps, layers]
    assert "fused with torch" in caplog.text
    assert "not fused" not in caplog.text


def test_a_layer_leaves_its_last_addition_to_a_fused_one_right_after_it() -> None:
    model = tiny_model("llama")
    build_executor(model)
    assert [layer.hands_on for layer in model.model.layers] == [True, True, False]
    model = tiny_model("llama")
    by_hand = model.model.layers[1]
    by_hand.forward = by_hand.forward
    assert run_mixed(model).deviation <= 1e-4
    first, second, third = model.model.layers
    assert second is by_hand
    assert not first.hands_on
    assert not third.hands_on


def test_an_answer_that_is_changed_on_its_way_to_the_next_layer_is_noticed() -> None:
    model = tiny_model("llama")
    executor = build_executor(model)
    model.model.layers[0].register_forward_hook(lambda module, args, answer: answer * 2)
    driver = HandDriver(executor.spec)
    with pytest.raises(RuntimeError, match="changed on its way to the next"):
        executor.logits(driver.bind([(driver.sequence([1, 2, 3]), 3)]))


def test_it_can_be_turned_off() -> None:
    model = tiny_model("llama")
    build_executor(model, fuse=False)
    assert not any(count(model, kind) for kind in (FusedNorm, FusedAttention, FusedGatedMLP, FusedLayer))


def test_weights_are_not_held_twice() -> None:
    model = tiny_model("qwen2")
    before = sum(parameter.numel() for parameter in model.parameters())
    build_executor(model, **TORCH)
    assert sum(parameter.numel() for parameter in model.parameters()) == before


def test_a_fused_model_still_runs_as_transformers_would() -> None:
    tokens = token_ids(20, 1)
    expected = lone_logits(tiny_model("qwen3"), tokens)
    model = tiny_model("qwen3")
    build_executor(model, **TORCH)
    assert torch.allclose(lone_logits(model, tokens), expected, rtol=0, atol=1e-4)


class Crooked(ReferenceOperators):
    """Gates are a little off, and norms break."""

    name = "crooked"

    def gate(self, joint: torch.Tensor, activation: str) -> torch.Tensor:
        return super().gate(joint, activation) * 1.01

    def rms_norm(self, states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        raise RuntimeError("no norms today")


def test_what_differs_or_fails_is_reverted_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crooked(device_type: str, names: tuple[str, ...] | None) -> KernelRegistry:
        registry = KernelRegistry(device_type)
        registry.register(ReferenceAttention())
        registry.register_operators(Crooked())
        return registry

    monkeypatch.setattr("core_engine.model.load.kernels_for", crooked)
    model = tiny_model("llama")
    run = run_mixed(model)
    assert run.deviation <= 1e-4
    kinds = (FusedNorm, FusedAttention, FusedGatedMLP, FusedLayer)
    assert [count(model, kind) for kind in kinds] == [0, 3, 0, 0]
    assert "not fused: 3 LlamaMLP: differs by 0.01 of the original" in caplog.text
    assert "not fused: 7 LlamaRMSNorm: RuntimeError: no norms today" in caplog.text
    assert "not fused: 3 LlamaDecoderLayer: its norms aren't" in caplog.text


class NoRoom(ReferenceOperators):
    """Heads are too large."""

    name = "no-room"

    def rotate_and_write(self, *arguments: Any) -> torch.Tensor:
        raise ValueError("no room for such heads")


def test_attention_that_fails_is_reverted_and_leaves_no_weights_behind(caplog: pytest.LogCaptureFixture) -> None:
    registry = KernelRegistry("cpu")
    registry.register(ReferenceAttention())
    registry.register_operators(NoRoom())
    model = tiny_model("llama")
    before = sum(parameter.numel() for parameter in model.parameters())
    Assembly(model, EngineConfig(), registry)
    assert sum(parameter.numel() for parameter in model.parameters()) == before
    assert "not fused: 3 LlamaAttention: ValueError: no room for such heads" in caplog.text


def test_a_module_that_was_changed_by_hand_is_left_alone() -> None:
    model = tiny_model("llama")
    mlp = model.model.layers[1].mlp
    mlp.forward = lambda states: states * 0
    build_executor(model, **TORCH)
    assert model.model.layers[1].mlp is mlp
    assert count(model, FusedGatedMLP) == 2


# Where kernels come from.


class Other(ReferenceAttention):
    name = "other"


def register_other(registry: KernelRegistry) -> None:
    registry.register(Other())


def register_broken(registry: KernelRegistry) -> None:
    raise OSError("no such library")


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entry points of some other package."""
    points = [
        importlib.metadata.EntryPoint(name, f"{__name__}:register_{name}", providers.GROUP)
        for name in ("other", "broken")
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: importlib.metadata.EntryPoints(points))


@pytest.mark.usefixtures("offered")
def test_kernels_of_another_package_are_used_when_named() -> None:
    assert build_executor(tiny_model("llama"), kernels=("other",)).kernel_names == ["other"]
    assert build_executor(tiny_model("llama")).kernel_names == ["torch"]


@pytest.mark.usefixtures("offered")
def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ModelError, match="there are no kernels 'othr'; there are broken, other, torch"):
        providers.kernels_for("cpu", ("othr",))


@pytest.mark.usefixtures("offered")
def test_kernels_that_fail_at_start_are_named() -> None:
    with pytest.raises(ModelError, match=r"kernels 'broken' \(.*register_broken\) fail at start: OSError: no such"):
        providers.kernels_for("cpu", ("broken",))


def test_an_installation_from_before_the_kernels_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: importlib.metadata.EntryPoints())
    providers._warn_of_old_installation.cache_clear()
    for _ in range(2):
        providers.kernels_for("cpu", None)
    assert caplog.text.count("contrib_kernels is here, but this environment knows no kernels of it") == 1
    caplog.clear()
    providers._warn_of_old_installation.cache_clear()
    providers.kernels_for("cpu", ("torch",))
    assert not caplog.records
