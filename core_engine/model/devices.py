"""Which device and number format to compute in."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from core_engine.config import EngineConfig
from core_engine.errors import ModelError


def choose_device(config: EngineConfig) -> torch.device:
    """The device asked for; with `auto`, CUDA where there is one. Raises ModelError where it is missing."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError("device 'cuda' was asked for, but this torch finds no usable NVIDIA GPU; use cpu or auto")
    if config.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def choose_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """The format asked for; with `auto`, bfloat16 where the device computes in it, else float32."""
    if config.dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[config.dtype]
    return torch.bfloat16 if _computes_in_bfloat16(device) else torch.float32


def describe(device: torch.device) -> str:
    """Name of the processor, as precisely as it is known: what a probe's verdict depends on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    details = {line.split(":")[0].strip(): line for line in lines if line.startswith(("model name", "flags"))}
    return "\n".join([platform.machine(), platform.processor(), *details.values()])


def _computes_in_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, check)() for check in checks if hasattr(torch.cpu, check))
