"""All layers in one call of the C++ library give what they give one by one, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from contrib_kernels.cpu.attention import CpuAttention
from contrib_kernels.cpu.float_rows import FloatRows
from contrib_kernels.cpu.int8 import CpuInt8Rows
from contrib_kernels.cpu.library import Library
from contrib_kernels.cpu.operators import CpuOperators
from contrib_kernels.cpu.rows import FewRows
from contrib_kernels.cpu.stack import CpuLayerStack
from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.model.executor import TransformersExecutor
from core_engine.model.kernels import KernelRegistry
from core_engine.model.load import Assembly
from core_engine.model.quantized_linear import int8_refusal
from core_engine.request import Sequence
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import BLOCK_SIZE, token_ids


def build(model: Any, library: Library, quantize: str | None = None) -> TransformersExecutor:
    registry = KernelRegistry("cpu")
    registry.register(CpuAttention(library))
    registry.register_operators(CpuOperators(library))
    registry.register_float_product(FloatRows(library))
    if library.has_few_rows:
        registry.register_row_product(FewRows(library))
    elif model.dtype == torch.bfloat16:
        pytest.skip("no products of bfloat16 for this instruction set")
    registry.register_int8_rows(CpuInt8Rows(library))
    registry.register_layer_stack(CpuLayerStack(library))
    config = EngineConfig(block_size=BLOCK_SIZE, kv_memory_bytes=4 << 20, quantize=quantize)
    executor = Assembly(model, config, registry).executor("tiny")
    assert model.model.layers[0].stack is not None
    return executor


class Comparison:
    """Passes that are run twice, layer by layer and in one call."""

    def __init__(self, executor: TransformersExecutor) -> None:
        self.executor = executor
        self.driver = HandDriver(executor.spec)
        self.first_layer = executor.model.model.layers[0]
        self.stack = self.first_layer.stack

    def step(self, *plan: tuple[Sequence, int], idle_rows: int = 0) -> None:
        batch = self.driver.bind(list(plan), sample_all=True, idle_rows=idle_rows)
        self.first_layer.stack = None
        expected = self.executor.logits(batch)
        self.first_layer.stack = self.stack
        for site in self.executor.sites:  # what the one has written helps the other nothing
            site.cache.keys.flatten(1, 2)[:, batch.slot_mapping] = torch.nan
            site.cache.values.flatten(1, 2)[:, batch.slot_mapping] = torch.nan
        found = self.executor.logits(batch)
        assert expected is not None
        assert found is not None
        assert torch.equal(found, expected)
        assert found.isfinite().all()
        self.driver.advance(batch)


# Plain; windows; biases with windows in some layers only; norms of queries and keys; another activation.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("model_type", "quantize"),
    [("llama", None), ("mistral", None), ("qwen2", None), ("qwen3", None), ("gemma", None), ("qwen2", "int8")],
)
def test_layers_in_one_call(library: Library, model_type: str, quantize: str | None, dtype: torch.dtype) -> None:
    if quantize is not None and dtype == torch.float32 and int8_refusal(dtype, torch.device("cpu")) is None:
        pytest.skip("with units for eight bits, rows in float32 are rounded too, layer by layer")
    comparison = Comparison(build(tiny_model(model_type, dtype=dtype), library, quantize))
    a, b, *others = (comparison.driver.sequence(token_ids(40, salt)) for salt in range(9))
    for num_tokens in range(1, 9):  # until `a` is longer than any window
        comparison.step((a, num_tokens))
    comparison.step((b, 21))
    comparison.step((a, 1), (b, 3), idle_rows=2)
    comparison.driver.release(a)
    comparison.step((a, 7), (b, 1))
    comparison.step((a, 1), *((other, 1) for other in others))
    comparison.step((a, 1), (b, 1))


def test_what_a_pass_answers_is_left_alone_by_the_next(library: Library) -> None:
    executor = build(tiny_model("llama"), library)
    answers: list[torch.Tensor] = []
    executor.model.model.layers[-1].register_forward_hook(lambda module, args, answer: answers.append(answer))
    driver = HandDriver(executor.spec)
    executor.logits(driver.bind([(driver.sequence([5]), 1)]))
    before = answers[0].clone()
    executor.logits(driver.bind([(driver.sequence([9]), 1)]))
    assert torch.equal(answers[0], before)
    assert not torch.equal(answers[1], before)


def test_layers_with_parts_of_others_are_refused(library: Library) -> None:
    executor = build(tiny_model("llama"), library)
    layers = executor.model.model.layers[0].stack._run._layers
    stack = CpuLayerStack(library)
    assert stack.build(layers) is not None
    assert stack.build([*layers[:-1], replace(layers[-1], down=lambda states: states)]) is None
