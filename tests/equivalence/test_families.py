"""Mixed batches of the common model families give every sequence what plain transformers gives it alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core_engine.model.attention import IMPLEMENTATION
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import lone_logits, run_mixed

TOLERANCE = 1e-4
FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "gpt2", "gpt_neox", "olmo2", "granite", "mixtral",
    "gpt_oss",
)  # fmt: skip
DROP_KEYWORD_ARGUMENTS = ("stablelm", "nemotron")
UNUSUAL_SHAPES = ("deepseek_v3", "gemma2", "llama4_text")  # unlike head sizes; soft-cap; chunks of positions
PLAIN: dict[str, Any] = {"kernels": ("torch",), "fuse": False}


@pytest.mark.parametrize("options", [PLAIN, {"kernels": ("torch",)}, {}], ids=["plain", "fused", "kernels"])
@pytest.mark.parametrize("model_type", [*FAMILIES, *DROP_KEYWORD_ARGUMENTS, *UNUSUAL_SHAPES])
def test_mixed_equals_alone(model_type: str, options: dict[str, Any]) -> None:
    run = run_mixed(tiny_model(model_type), **options)
    assert run.deviation <= TOLERANCE
    assert len(run.positions) > 20


def test_the_comparison_notices_a_wrong_key() -> None:
    """Guards the tests above: one key of another token is enough to be seen."""
    model = tiny_model("llama")
    run = run_mixed(model)
    prompt = [5, 6, 7, 8, 9, 10]
    sequence = run.driver.sequence(prompt)
    run.expected[sequence.id] = lone_logits(model, prompt)
    model.set_attn_implementation(IMPLEMENTATION)
    run.step([(sequence, 5)])
    keys = run.executor.sites[0].cache.keys[:, sequence.block_table[0]]
    keys[:, 1] = keys[:, 2]
    run.step([(sequence, 1)])
    assert run.deviation > 100 * TOLERANCE


def test_no_mask_reaches_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    from core_engine.model import attention

    masks = []
    genuine = attention.attend

    def spy(module, query, key, value, attention_mask, **kwargs):
        masks.append(attention_mask)
        return genuine(module, query, key, value, attention_mask, **kwargs)

    monkeypatch.setitem(attention.AttentionInterface._global_mapping, IMPLEMENTATION, spy)
    run_mixed(tiny_model("mistral"), **PLAIN)
    assert masks
    assert all(mask is None for mask in masks)


def test_half_precision_stays_near() -> None:
    """The dtype of the tests above is float32; others go the same way with coarser rounding."""
    for dtype, tolerance in ((torch.bfloat16, 0.6), (torch.float16, 0.1)):
        run = run_mixed(tiny_model("llama", dtype=dtype))
        assert {site.cache.keys.dtype for site in run.executor.sites} == {dtype}
        assert run.deviation < tolerance
