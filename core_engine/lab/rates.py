"""The source's workload at any rate of arrivals: on the model of this process, or simulated by its linear table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice

import msgspec

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.lab.arriving import Answered, SkippingClock, run_arriving
from core_engine.lab.timed import TimedExecutor
from core_engine.lab.workloads import poisson, requests, uniform_lengths
from core_engine.loading import linear_floor, load_executor, prepare_model

_SEED = 0
_UNLOADED = 1e-6  # requests/s, at which none meets another


class Rates:
    """Answers to the same requests, with the same gaps stretched to the rate, under any policies.

    Building it loads the model and measures its linear layers; raises ModelError.
    """

    def __init__(self, config: EngineConfig, num_requests: int) -> None:
        self._config = config
        directory = prepare_model(config)
        floor = linear_floor(config, directory)
        self._linear_seconds = cache(lambda rows, heads: floor.seconds([(rows, heads)]))
        self._executor = load_executor(config, directory)
        self.spec = self._executor.spec
        lengths = islice(uniform_lengths(_SEED), num_requests)
        self._requests = list(requests(lengths, seed=_SEED, vocab_size=self.spec.vocab_size, model=self.spec.name))

    def measured(self, policies: tuple[str, ...], rate: float, alone: Sequence[Answered] = ()) -> list[Answered]:
        """On the model, in real time but for its pauses. `rate` in requests/s; infinite: all at once.

        What meets no other request is taken from `alone`. Raises EngineUnavailable where a request fails.
        """
        clock = SkippingClock()
        engine = Engine(self._with(policies), self._executor, clock=clock)
        return run_arriving(engine, clock, poisson(self._requests, rate, _SEED), alone)

    def simulated(self, policies: tuple[str, ...], rate: float, alone: Sequence[Answered] = ()) -> list[Answered]:
        """The same in virtual time, in which only linear layers take any, and memory is no bound."""
        clock = VirtualClock()
        executor = TimedExecutor(
            clock,
            self._linear_seconds,
            name=self.spec.name,
            vocab_size=self.spec.vocab_size,
            num_sequences=self._config.sequence_limit,
        )
        config = msgspec.structs.replace(self._with(policies), block_size=executor.spec.block_size)
        return run_arriving(Engine(config, executor, clock=clock), clock, poisson(self._requests, rate, _SEED), alone)

    def alone_measured(self) -> list[Answered]:
        """Each request by itself, on the model."""
        return self.measured((), _UNLOADED)

    def alone_simulated(self) -> list[Answered]:
        """Each request by itself, simulated."""
        return self.simulated((), _UNLOADED)

    def _with(self, policies: tuple[str, ...]) -> EngineConfig:
        return msgspec.structs.replace(self._config, policies=policies, seed=_SEED)
