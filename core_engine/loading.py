"""From a configuration to an executor: the one place that knows which executors there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core_engine.config import EngineConfig
from core_engine.executor import Executor


def prepare_model(config: EngineConfig) -> Path:
    """Put the model's files in place, fetching and converting them if need be; returns their directory.

    Raises ModelError.
    """
    if config.executor == "simulated":
        return Path(config.model)
    from core_engine.model import prepare_model as prepare

    return prepare(config)


def load_executor(
    config: EngineConfig, directory: Path, report: Callable[[str, float], None] = lambda phase, seconds: None
) -> Executor:
    """The executor that the configuration names, on the model in `directory`.

    `report` hears the seconds of each phase. Only the transformers executor imports torch.
    Raises ModelError.
    """
    if config.executor == "simulated":
        from core_engine.lab.simulated import load_simulated

        return load_simulated(config, directory)
    from core_engine.model import load_executor as load

    return load(config, directory, report)
