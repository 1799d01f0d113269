"""The start of an executor, phase by phase, with the time of each."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.executor import Executor
from core_engine.heap import give_back_memory
from core_engine.request import SamplingParams

if TYPE_CHECKING:
    from core_engine.model.executor import TransformersExecutor

Report = Callable[[str, float], None]


def start(config: EngineConfig, directory: Path, report: Report) -> Executor:
    """Import, load, allocate, probe and warm up. Raises ModelError."""
    phase = _Phases(report)
    with _collection_paused():
        with phase("import"):
            # How many prepared products oneDNN, and torch's layer over it, keep: attention brings new shapes for
            # ever, and what is kept of each adds up to more than the model.
            for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
                os.environ.setdefault(name, "64")
            from core_engine.model.proven import load_proven
        executor = load_proven(config, directory, phase)
        with phase("warm-up"):
            warm_up(executor, config)
    give_back_memory()
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
