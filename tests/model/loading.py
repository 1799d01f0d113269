"""Loads a tiny model from its directory as a server does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

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


def read_weights_of_mlp(model: Any) -> None:
    """Let the model's code reach past a linear layer of its first MLP to the weight."""
    mlp = model.model.layers[0].mlp
    genuine = mlp.forward

    def reads_weight(states: torch.Tensor) -> torch.Tensor:
        assert mlp.gate_proj.weight.dim() == 2
        answer: torch.Tensor = genuine(states)
        return answer

    mlp.forward = reads_weight


def load(directory: Path, phases: list[str] | None = None, **options: Any) -> Executor:
    config = config_for(directory, **options)

    def report(phase: str, seconds: float) -> None:
        assert seconds >= 0
        if phases is not None:
            phases.append(phase)

    return load_executor(config, prepare_model(config), report)
