"""The model half: the only part of Jitney that imports torch and transformers.

Importing this package is cheap; torch comes in when a model has to be converted or loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core_engine.config import EngineConfig
from core_engine.executor import Executor


def prepare_model(config: EngineConfig) -> Path:
    """Find, fetch or convert the model that `config.model` names; returns its directory.

    The directory holds `config.json`, a `tokenizer.json` that the `tokenizers` library reads alone,
    the chat template where the model has one, and weights as safetensors. Raises ModelError.
    """
    from core_engine.model.prepare import prepare

    return prepare(config.model)


def load_executor(
    config: EngineConfig, directory: Path, report: Callable[[str, float], None] = lambda phase, seconds: None
) -> Executor:
    """Load, probe and warm up the model in `directory`.

    `report` hears the seconds of each phase: import, load, kv, probe, warm-up. Raises ModelError.
    """
    if config.task == "embed":
        from core_engine.model.embedding import start_embedding

        return start_embedding(config, directory, report)
    from core_engine.model.start import start

    return start(config, directory, report)
