"""A standard workload through the engine of this process, beside its floor and beside plain transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.lab.measured import MeasuredRun, run_at_once
from core_engine.lab.schedule import reference_schedule
from core_engine.lab.standard import standard_requests
from core_engine.loading import count_shares, linear_floor, load_executor, prepare_model, static_batches
from core_engine.messages import EngineInfo
from core_engine.request import Request


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; `transformers_seconds` is empty unless asked for, else one for each run.

    `floor_seconds`: the linear layers alone, on the reference schedule. `memory_floor_seconds`: reading every
    weight once an iteration at the speed that memory has here. `shares`: of linear layers, attention and all
    other in the wall time of one more run, in which they were timed.
    """

    info: EngineInfo
    runs: list[MeasuredRun]
    floor_seconds: float
    memory_floor_seconds: float
    shares: dict[str, float]
    transformers_seconds: list[float]


class AtOnce:
    """Measures one workload with one model. Building it loads the model; raises ModelError."""

    def __init__(self, name: str, config: EngineConfig, num_requests: int | None = None) -> None:
        self._name = name
        self._num_requests = num_requests
        self._config = config
        self._directory = prepare_model(config)
        self._executor = load_executor(config, self._directory)
        self._engine = Engine(config, self._executor)
        run_at_once(self._engine, self._requests("warm-up")[:4])

    def measure(
        self, num_runs: int, *, versus_transformers: bool, progress: Callable[[str], None] = lambda line: None
    ) -> Measurement:
        """Run the workload so many times, alternating with transformers where asked; the floor comes first."""
        progress("the floor")
        floor_seconds, memory_floor_seconds = self._floors()
        plain = static_batches(self._config, self._directory) if versus_transformers else None
        runs: list[MeasuredRun] = []
        transformers_seconds: list[float] = []
        for number in range(1, num_runs + 1):
            progress(f"run {number} of {num_runs}")
            runs.append(run_at_once(self._engine, self._requests(f"run-{number}")))
            if plain is not None:
                progress(f"run {number} of {num_runs}, transformers")
                transformers_seconds.append(plain.seconds(self._requests("plain")))
        progress("one run more, part by part")
        return Measurement(
            info=self._engine.info,
            runs=runs,
            floor_seconds=floor_seconds,
            memory_floor_seconds=memory_floor_seconds,
            shares=self._shares(),
            transformers_seconds=transformers_seconds,
        )

    def _shares(self) -> dict[str, float]:
        with count_shares(self._executor) as shares:
            run = run_at_once(self._engine, self._requests("shares"))
        return shares.of(run.wall_seconds)

    def _requests(self, prefix: str) -> list[Request]:
        info = self._engine.info
        wanted = standard_requests(
            self._name, model=info.model, vocab_size=info.vocab_size, num_requests=self._num_requests, prefix=prefix
        )
        # A salt of its own, so that no run finds the prompts of the one before in the prefix cache.
        return [msgspec.structs.replace(request, cache_salt=prefix) for request in wanted]

    def _floors(self) -> tuple[float, float]:
        floor = linear_floor(self._config, self._directory)
        schedule = reference_schedule(self._requests("floor"), self._engine.info.vocab_size)
        return floor.linear.seconds(schedule), len(schedule) * floor.weight_bytes / floor.read_bytes_per_second


def describe_floor(config: EngineConfig) -> dict[str, Any]:
    """Seconds of the linear layers by number of rows, bytes of their weights, and how fast memory is read."""
    floor = linear_floor(config, prepare_model(config))
    return {
        "linear_seconds": floor.linear.sampled_seconds(),
        "weight_bytes": floor.weight_bytes,
        "read_bytes_per_second": floor.read_bytes_per_second,
    }
