"""The kernels in Triton, interpreted in a process of their own: importing Triton settles whether it interprets."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from contrib_kernels import triton as kernels
from core_engine.model.kernels import KernelRegistry

TESTS = Path(__file__).parent / "triton"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton: pip install triton")


@needs_triton
@pytest.mark.parametrize("file", ["test_attention.py", "test_operators.py"])
def test_by_the_interpreter(file: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / file)],
        env=environment, capture_output=True, text=True, cwd=TESTS.parents[2], check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> KernelRegistry:
    """Of a machine with an H100, whatever this one has."""
    device = SimpleNamespace(name="NVIDIA H100", major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device)
    return KernelRegistry("cuda")


@needs_triton
def test_registered_for_cuda(registry: KernelRegistry) -> None:
    kernels.register_kernels(registry)
    assert [kernel.name for kernel in registry._kernels] == ["triton"]
    assert registry.operators_for(torch.bfloat16).name == "triton"


def test_not_registered_for_the_cpu() -> None:
    registry = KernelRegistry("cpu")
    kernels.register_kernels(registry)
    assert not registry._kernels


def test_without_triton_torch_serves(
    registry: KernelRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    kernels.register_kernels(registry)
    assert not registry._kernels
    assert "pip install triton" in caplog.text


@needs_triton
def test_an_old_gpu_is_served_by_torch(
    registry: KernelRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old = SimpleNamespace(name="Tesla T4", major=7, minor=5, multi_processor_count=40)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: old)
    with caplog.at_level(logging.WARNING, logger="jitney.kernels"):
        kernels.register_kernels(registry)
    assert not registry._kernels
    assert "Tesla T4 has compute capability 7.5" in caplog.text
