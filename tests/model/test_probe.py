"""The probe at start, its verdicts, and what becomes of kernels that fail it."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from core_engine.errors import ModelError
from core_engine.model.executor import TransformersExecutor
from tests.model.loading import MakeDirectory, load


def spoil_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every decode attends to one key less than it should."""
    from core_engine.model import reference

    genuine = reference._plan_decodes

    def short_sighted(*arguments: Any) -> Any:
        plan = genuine(*arguments)
        plan.mask[:, :, :, 0] = float("-inf")
        return plan

    monkeypatch.setattr(reference, "_plan_decodes", short_sighted)


def test_a_model_that_comes_out_different_is_not_served(
    model_directory: MakeDirectory, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = model_directory()
    spoil_attention(monkeypatch)
    with pytest.raises(ModelError, match="LlamaForCausalLM can't be served: in a mixed batch its logits differ"):
        load(directory)
    assert not list(cache.glob("verdicts/*"))
    load(directory, probe=False)


def test_a_verdict_is_kept_until_the_model_changes(
    model_directory: MakeDirectory, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = model_directory()
    load(directory)
    assert len(list(cache.glob("verdicts/*"))) == 1
    spoil_attention(monkeypatch)
    load(directory)  # not probed again, or it would fail
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    with pytest.raises(ModelError, match="logits differ"):
        load(directory)


def test_without_a_cache_every_start_probes(
    model_directory: MakeDirectory, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the directory should be")
    load(model_directory())
    assert "verdict can't be kept" in caplog.text


def test_a_verdict_does_not_hold_for_another_format(
    model_directory: MakeDirectory, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = model_directory()
    load(directory, dtype="bfloat16")
    spoil_attention(monkeypatch)
    with pytest.raises(ModelError, match="logits differ"):
        load(directory, dtype="float32")


KERNELS = """
from core_engine.model.reference import ReferenceAttention

class Sound(ReferenceAttention):
    name = "sound"

class Forgetful(ReferenceAttention):
    name = "forgetful"

    def plan(self, layout, shape, null_block):
        return super().plan(layout, shape, null_block), len(layout.rows)

    def attend(self, query, cache, plan, shape, sinks, output):
        super().attend(query, cache, plan[0], shape, sinks, output)
        if plan[1] > 1:
            output.zero_()

def sound(registry):
    registry.register(Sound())

def forgetful(registry):
    registry.register(Forgetful())
"""


@pytest.fixture
def kernel_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of kernels, of which `forgetful` fail only where sequences are mixed."""
    package = tmp_path / "site" / "some_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    points = [
        importlib.metadata.EntryPoint(name, f"{package.name}:{name}", "jitney.kernels")
        for name in ("sound", "forgetful")
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: importlib.metadata.EntryPoints(points))
    return package


def test_a_verdict_does_not_outlive_the_kernels_it_was_about(
    model_directory: MakeDirectory, cache: Path, kernel_package: Path
) -> None:
    directory = model_directory()
    for _ in range(2):
        load(directory, kernels=("sound",))
        assert len(list(cache.glob("verdicts/*"))) == 1
    (kernel_package / "helper.py").write_text("WIDTH = 16")
    load(directory, kernels=("sound",))
    assert len(list(cache.glob("verdicts/*"))) == 2


def test_kernels_that_fail_the_probe_are_left_out(
    model_directory: MakeDirectory, cache: Path, kernel_package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = load(model_directory(), kernels=("forgetful",))
    assert isinstance(executor, TransformersExecutor)
    assert executor.kernel_names == ["torch"]
    assert "with fused modules and kernels: LlamaForCausalLM can't be served: in a mixed batch" in caplog.text


def test_what_the_log_says_of_kernels(
    model_directory: MakeDirectory, cache: Path, kernel_package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="jitney.model"):
        load(model_directory(), kernels=("sound",))
        load(model_directory(), kernels=("torch",), fuse=False)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("kernels: ")]
    assert lines == ["kernels: attention by sound; 16 modules fused", "kernels: attention by torch; 0 modules fused"]
