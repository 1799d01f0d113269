"""Loads a tiny model from its directory as a server does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core_engine.config import EngineConfig
from core_engine.executor import Executor
from core_engine.model import load_executor, prepare_model

MakeDirectory = Callable[..., Path]


def config_for(directory: Path, **options: Any) -> EngineConfig:
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "kv_memory_bytes": 1 << 20,
        "token_limit": 64,
        "sequence_limit": 4,
        "kernels": ("torch",),
    }
    return EngineConfig(model=str(directory), **defaults | options)


def load(directory: Path, phases: list[str] | None = None, **options: Any) -> Executor:
    config = config_for(directory, **options)

    def report(phase: str, seconds: float) -> None:
        assert seconds >= 0
        if phases is not None:
            phases.append(phase)

    return load_executor(config, prepare_model(config), report)
