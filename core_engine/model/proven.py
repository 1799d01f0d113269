"""An executor that passed the probe: with fused modules and kernels if it does so with them, else without."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from core_engine.config import EngineConfig
from core_engine.loading import model_name
from core_engine.model.executor import TransformersExecutor
from core_engine.model.load import Assembly, load_model
from core_engine.model.probe import ProbeError, probe
from core_engine.model.providers import origins
from core_engine.model.verdicts import Verdict

_log = logging.getLogger("jitney.model")

Phase = Callable[[str], AbstractContextManager[None]]


def load_proven(config: EngineConfig, directory: Path, phase: Phase) -> TransformersExecutor:
    """Load, allocate and, unless the configuration says otherwise, probe; each in a `phase` of that name.

    Raises ModelError, of which ProbeError is for a model that fails the probe even as transformers has it.
    """
    try:
        return _load(config, directory, phase)
    except ProbeError as error:
        if _is_plain(config):
            raise
        _log.error("with fused modules and kernels: %s. It is loaded once more, without them", error)
    # Out of the handler, whose error would keep the first model in memory.
    gc.collect()
    return _load(msgspec.structs.replace(config, fuse=False, kernels=()), directory, phase)


def _is_plain(config: EngineConfig) -> bool:
    """Whether transformers and torch compute everything as it is."""
    return not config.fuse and config.kernels is not None and set(config.kernels) <= {"torch"}


def _load(config: EngineConfig, directory: Path, phase: Phase) -> TransformersExecutor:
    with phase("load"):
        model = load_model(config, directory)
        assembly = Assembly(model, config)
    with phase("kv"):
        executor = assembly.executor(model_name(config))
    if config.probe:
        with phase("probe"):
            kernels = [*assembly.kernel_names, *origins(config.kernels)]
            verdict = Verdict(directory, executor.spec, kernels, model.device)
            if not verdict.is_known:
                verdict.keep(probe(model, executor))
    return executor
