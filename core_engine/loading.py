"""From a configuration to an executor: the one place that knows which executors there are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from core_engine.config import EngineConfig
from core_engine.executor import Executor, ModelSpec
from core_engine.grammars.compiler import GrammarCompiler
from core_engine.grammars.vocabulary import Vocabulary

if TYPE_CHECKING:
    from core_engine.linear_table import LinearTable
    from core_engine.model.floor import LinearFloor
    from core_engine.model.shares import Shares
    from core_engine.model.static import StaticBatches


def model_name(config: EngineConfig) -> str:
    """What clients call the model: as configured, else by what it is loaded from, of a path the last part."""
    if config.served_model_name is not None:
        return config.served_model_name
    path = Path(config.model).expanduser()
    if not path.exists():
        return config.model
    path = path.resolve()
    return path.stem if path.suffix == ".gguf" else path.name


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


def grammar_compiler(directory: Path, spec: ModelSpec) -> GrammarCompiler:
    """What compiles grammars for the model in `directory`; its tokenizer is read when the first one comes."""

    def load_vocabulary() -> Vocabulary:
        from core_engine.text import load_text_model

        return Vocabulary.of(load_text_model(directory), spec.vocab_size, spec.eos_token_ids)

    return GrammarCompiler(load_vocabulary)


def linear_floor(config: EngineConfig, directory: Path) -> LinearFloor:
    """Measure the linear layers of the model in `directory` by themselves, and the speed of memory."""
    from core_engine.model.floor import LinearFloor

    return LinearFloor(config, directory)


def measure_linears(executor: Executor) -> LinearTable:
    """Measure the linear layers of a real (not simulated) executor's model by themselves, as it runs them."""
    from core_engine.model.executor import TransformersExecutor
    from core_engine.model.floor import measure_linears as measure

    assert isinstance(executor, TransformersExecutor)
    return measure(executor.model)


def static_batches(config: EngineConfig, directory: Path) -> StaticBatches:
    """The model in `directory` as plain transformers runs it, loaded a second time."""
    from core_engine.model.static import StaticBatches

    return StaticBatches(config, directory)


def write_random_weights(directory: Path, seed: int) -> None:
    """Random bfloat16 weights for the config.json in `directory`, beside it. Imports torch; raises OSError."""
    from core_engine.model.random_weights import write_random_weights as write

    write(directory, seed)


def count_shares(executor: Executor) -> AbstractContextManager[Shares]:
    """Count, meanwhile, the seconds that a real (not simulated) executor spends, operation by operation."""
    from core_engine.model.executor import TransformersExecutor
    from core_engine.model.shares import count_shares as count

    assert isinstance(executor, TransformersExecutor)
    return count(executor)


def top_torch_operations(run: Callable[[], None], repeats: int, top: int) -> dict[str, dict[str, float]]:
    """Torch's operations in so many runs, the longest first."""
    from core_engine.model.torch_profile import top_torch_operations as find

    return find(run, repeats, top)
