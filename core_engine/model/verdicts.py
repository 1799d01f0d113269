"""Probe verdicts are kept, so that the same model in the same surroundings is probed once."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import torch
import transformers

from core_engine.executor import ModelSpec
from core_engine.model.cache import cache_root, digest, identity
from core_engine.model.devices import describe

_log = logging.getLogger("jitney.model")


class Verdict:
    """Whether a model was found sound, for this state of its files, this code, these versions and this processor."""

    def __init__(self, directory: Path, spec: ModelSpec, kernels: list[str], device: torch.device) -> None:
        """`kernels`: names of those in use, and what their packages are by now."""
        model_files = sorted(file for file in directory.iterdir() if file.suffix in (".safetensors", ".json"))
        own_code = sorted(Path(__file__).parent.glob("*.py"))
        name = digest(
            identity(model_files),
            identity(own_code),
            *(torch.__version__, transformers.__version__, describe(device)),
            *(spec.dtype, str(spec.block_size), *kernels),
        )
        self._file = cache_root() / "verdicts" / f"{name}.json"

    @property
    def is_known(self) -> bool:
        """Whether the model passed before."""
        return self._file.is_file()

    def keep(self, deviation: float) -> None:
        """Remember that it passed; where the cache can't be written, the next start probes again."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"deviation": deviation}), encoding="utf-8")
        except OSError as error:
            _log.warning("the probe's verdict can't be kept: %s", error)
