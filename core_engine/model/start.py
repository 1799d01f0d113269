"""The start of an executor, phase by phase, with the time of each."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.executor import Executor
from core_engine.loading import model_name
from core_engine.request import SamplingParams

if TYPE_CHECKING:
    from core_engine.model.executor import TransformersExecutor

_log = logging.getLogger("jitney.model")

Report = Callable[[str, float], None]


def start(config: EngineConfig, directory: Path, report: Report) -> Executor:
    """Import, load, allocate, probe and warm up; what fails the probe is loaded once more as transformers has it.

    Raises ModelError.
    """
    phase = _Phases(report)
    with _collection_paused():
        with phase("import"):
            # How many prepared products oneDNN, and torch's layer over it, keep: attention brings new shapes for
            # ever, and what is kept of each adds up to more than the model.
            for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
                os.environ.setdefault(name, "64")
            from core_engine.model.probe import ProbeError
        try:
            executor = _load(config, directory, phase)
        except ProbeError as error:
            if _is_plain(config):
                raise
            _log.error("with fused modules and kernels: %s. It is loaded once more, without them", error)
            executor = None
        if executor is None:  # out of the handler, whose error keeps the first model in memory
            gc.collect()
            executor = _load(msgspec.structs.replace(config, fuse=False, kernels=()), directory, phase)
        with phase("warm-up"):
            warm_up(executor, config)
    return executor


def _is_plain(config: EngineConfig) -> bool:
    """Whether transformers and torch compute everything as it is."""
    return not config.fuse and config.kernels is not None and set(config.kernels) <= {"torch"}


def _load(config: EngineConfig, directory: Path, phase: _Phases) -> TransformersExecutor:
    from core_engine.model.load import Assembly, load_model
    from core_engine.model.probe import probe
    from core_engine.model.providers import origins
    from core_engine.model.verdicts import Verdict

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


def warm_up(executor: TransformersExecutor, config: EngineConfig) -> None:
    """Run a full iteration of prompt and one of decodes, so that the first request finds everything in place."""
    from core_engine.driver import HandDriver

    spec = executor.spec
    driver = HandDriver(spec)
    num_tokens = min(config.token_limit, spec.max_model_len, spec.num_blocks * spec.block_size)
    prompt = driver.sequence([0] * num_tokens)
    executor.collect(executor.submit(driver.bind([(prompt, num_tokens)])))
    driver.release(prompt)
    drawn = SamplingParams(temperature=1.0, top_p=0.9, logprobs=0)
    decodes = [driver.sequence([0], drawn) for _ in range(min(config.sequence_limit, spec.num_blocks))]
    executor.collect(executor.submit(driver.bind([(sequence, 1) for sequence in decodes])))


class _Phases:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._clock = MonotonicClock()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = self._clock.now()
        yield
        self._report(name, self._clock.now() - started)


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No garbage collection while hundreds of thousands of objects are made that stay for good, nor of these later.

    It takes more than a second of the imports otherwise, and would stop an iteration now and then.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
