"""Which models have their layers run in one call, for which passes, and what becomes of a stack that errs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.model.attention import Angles, ForwardPass
from core_engine.model.kernels import PlainLayer, RunLayers
from core_engine.model.load import Assembly
from core_engine.model.providers import kernels_for
from core_engine.model.quantized_linear import int8_refusal, precise
from core_engine.model.shares import count_shares
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import BLOCK_SIZE, build_executor, token_ids

KERNELS = kernels_for("cpu", None)

FLOATS = pytest.param(
    *(torch.float32, 64),
    marks=pytest.mark.skipif(KERNELS.layer_stack is None, reason="no compiler to build kernels with"),
)
BF16 = pytest.param(
    *(torch.bfloat16, 8),
    marks=pytest.mark.skipif(KERNELS.row_product is None, reason="this CPU has no units for bfloat16"),
)
needs_stack = pytest.mark.skipif(KERNELS.layer_stack is None, reason="no compiler to build kernels with")


class Counted:
    """A stack that counts the passes it has run."""

    def __init__(self, layer: Any) -> None:
        self.stack = layer.stack
        self.count = 0
        layer.stack = self

    def __call__(self, states: torch.Tensor, angles: Angles, forward_pass: ForwardPass) -> torch.Tensor | None:
        answer = self.stack(states, angles, forward_pass)
        self.count += answer is not None
        return answer


@pytest.mark.parametrize(("dtype", "max_rows"), [FLOATS, BF16])
def test_passes_of_few_rows_go_in_one_call(dtype: torch.dtype, max_rows: int, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model("llama", dtype=dtype)
    assembly = Assembly(model, EngineConfig(block_size=BLOCK_SIZE, kv_memory_bytes=4 << 20))
    with caplog.at_level(logging.INFO, logger="jitney.model"):
        executor = assembly.executor("tiny")
    assert f"3 layers in one call for up to {max_rows} rows" in caplog.text
    counted = Counted(model.model.layers[0])
    driver = HandDriver(executor.spec)
    prompt = driver.sequence(token_ids(200, 1))
    counts = []
    for num_tokens in (1, max_rows, max_rows + 1, 3):
        batch = driver.bind([(prompt, num_tokens)])
        executor.logits(batch)
        driver.advance(batch)
        counts.append(counted.count)
    assert counts == [1, 2, 2, 3]
    assembly.executor("other")  # with keys and values of its own
    counted = Counted(model.model.layers[0])
    executor.logits(driver.bind([(prompt, 1)]))
    assert counted.count == 0


@needs_stack
@pytest.mark.skipif(int8_refusal(torch.bfloat16, torch.device("cpu")) is not None, reason="no int8 here")
def test_quantised_layers_that_are_to_be_precise_run_one_by_one() -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    executor = build_executor(model, quantize="int8")
    counted = Counted(model.model.layers[0])
    driver = HandDriver(executor.spec)
    batch = driver.bind([(driver.sequence([3, 4, 5]), 3)])
    with precise(model):
        executor.logits(batch)
    assert counted.count == 0
    executor.logits(batch)
    assert counted.count == 1


@needs_stack
def test_layers_run_one_by_one_while_their_parts_are_timed() -> None:
    model = tiny_model("llama")
    executor = build_executor(model)
    counted = Counted(model.model.layers[0])
    driver = HandDriver(executor.spec)
    batch = driver.bind([(driver.sequence([3, 4, 5]), 3)])
    with count_shares(executor) as shares:
        executor.logits(batch)
    assert counted.count == 0
    assert shares.calls["linear", "down"] == len(model.model.layers)
    executor.logits(batch)
    assert counted.count == 1


@needs_stack
def test_an_answer_that_is_changed_on_its_way_through_is_noticed() -> None:
    model = tiny_model("llama")
    executor = build_executor(model)
    model.model.layers[1].register_forward_hook(lambda module, args, answer: answer * 2)
    driver = HandDriver(executor.spec)
    with pytest.raises(RuntimeError, match="changed on its way to the next, which has run already"):
        executor.logits(driver.bind([(driver.sequence([1, 2, 3]), 3)]))


@needs_stack
@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("gemma2", "their norms are elsewhere"),
        ("granite", "they scale what they add"),
        ("mixtral", "their MLPs aren't fused"),
        ("smollm3", "their attention isn't fused"),
    ],
)
def test_layers_of_other_kinds_run_one_by_one(model_type: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model(model_type)
    if model_type == "granite":
        for layer in model.model.layers:
            layer.residual_multiplier = 0.5
    with caplog.at_level(logging.INFO, logger="jitney.model"):
        build_executor(model)
    assert f"layers run one by one for few rows too: {reason}" in caplog.text
    assert model.model.layers[0].stack is None


class Crooked:
    """Layers that are a little off, or that break."""

    name = "crooked"

    def __init__(self, genuine: Any, error: Exception | None) -> None:
        self.genuine = genuine
        self.error = error

    def build(self, layers: list[PlainLayer]) -> RunLayers:
        genuine, error = self.genuine.build(layers), self.error

        class Run:
            max_rows = genuine.max_rows

            def __call__(self, *arguments: Any) -> torch.Tensor:
                if error is not None:
                    raise error
                answer: torch.Tensor = genuine(*arguments)
                return answer + torch.arange(answer.shape[-1]).sin().mul(answer.std()).to(answer.dtype)

        return Run()


@needs_stack
@pytest.mark.parametrize(
    ("error", "text"),
    [(None, "RuntimeError: in one call they differ by"), (OSError("no such register"), "OSError: no such register")],
)
def test_a_stack_that_gives_something_else_is_not_used(
    error: Exception | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    kernels = kernels_for("cpu", None)
    kernels.register_layer_stack(Crooked(kernels.layer_stack, error))
    model = tiny_model("llama")
    Assembly(model, EngineConfig(block_size=BLOCK_SIZE, kv_memory_bytes=4 << 20), kernels).executor("tiny")
    assert f"layers run one by one for few rows too: {text}" in caplog.text
    assert model.model.layers[0].stack is None
