"""Where the time of an iteration goes: by operation of the model, by function of Python, by operation of torch."""

from __future__ import annotations

import cProfile
import statistics
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.executor import Batch, Executor
from core_engine.loading import count_shares, load_executor, prepare_model, top_torch_operations

_CONTEXT_TOKENS = 200
_DECODES = (1, 8, 64)
_TOP = 12


def profile_iterations(
    config: EngineConfig, repeats: int = 10, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """An iteration of prompt as long as the token limit, and of 1, 8 and 64 decodes, taken apart.

    Each has the median seconds as they are, and then, from further runs: the share and the seconds of each
    operation (`other/rest` is all that has no name, Python's own work most of all), Python's functions by the time
    in themselves, and torch's operations. Timers and profilers cost time too, Python's the most, so the runs under
    them are for comparing lines with each other.
    """
    executor = load_executor(config, prepare_model(config))
    spec = executor.spec
    room = spec.num_blocks * spec.block_size
    prompt_tokens = min(config.token_limit, spec.max_model_len, room)
    batches = {f"a prompt of {prompt_tokens} tokens": _batch(executor, 1, prompt_tokens, 0)}
    for decodes in _DECODES:
        context = min(_CONTEXT_TOKENS, spec.max_model_len - 1)
        if decodes * (context + spec.block_size) <= room:
            batches[f"a token of {decodes} sequences"] = _batch(executor, decodes, 1, context)
    iterations = []
    for name, batch in batches.items():
        progress(name)
        iterations.append({"iteration": name} | _take_apart(executor, batch, repeats))
    return {"workload": "iteration profile", "model": spec.name, "dtype": spec.dtype, "iterations": iterations}


def _batch(executor: Executor, num_sequences: int, num_tokens: int, context: int) -> Batch:
    driver = HandDriver(executor.spec)
    sequences = [driver.sequence([1] * (context + num_tokens)) for _ in range(num_sequences)]
    for sequence in sequences:
        sequence.num_computed_tokens = context
    return driver.bind([(sequence, num_tokens) for sequence in sequences])


def _take_apart(executor: Executor, batch: Batch, repeats: int) -> dict[str, Any]:
    def run() -> None:
        executor.collect(executor.submit(batch))

    run()  # the first prepares products
    plain = _seconds(run, repeats)
    with count_shares(executor) as shares:
        timed = _seconds(run, repeats)
    whole = sum(timed)
    operations = {
        f"{part}/{operation}": {"seconds": seconds / repeats, "calls": shares.calls[part, operation] // repeats}
        for (part, operation), seconds in sorted(shares.seconds.items(), key=lambda item: -item[1])
    }
    named = sum(shares.seconds.values())
    return {
        "seconds": statistics.median(plain),
        "timed_seconds": whole / repeats,
        "shares": shares.of(whole),
        "operations": operations | {"other/rest": {"seconds": (whole - named) / repeats}},
        "python_functions": _top_functions(run, repeats),
        "torch_operations": top_torch_operations(run, repeats, _TOP),
    }


def _seconds(run: Callable[[], None], repeats: int) -> list[float]:
    clock = MonotonicClock()
    seconds = []
    for _ in range(repeats):
        began = clock.now()
        run()
        seconds.append(clock.now() - began)
    return seconds


def _top_functions(run: Callable[[], None], repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of an iteration in the function itself, under Python's profiler, which makes short ones look long."""
    profiler = cProfile.Profile()
    with profiler:
        for _ in range(repeats):
            run()
    best = sorted(profiler.getstats(), key=lambda entry: entry.inlinetime, reverse=True)[:_TOP]
    return {
        _name(entry.code): {"seconds": entry.inlinetime / repeats, "calls": entry.callcount // repeats}
        for entry in best
    }


def _name(code: CodeType | str) -> str:
    """As `fused.py:97 FusedAttention.forward`; what isn't written in Python says its own name."""
    if isinstance(code, str):
        return code
    return f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_qualname}"
