"""The source's workload at any rate of arrivals: on the model of this process, or simulated by its linear table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import islice

import msgspec

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import Executor
from core_engine.lab.arriving import Answered, SkippingClock, run_arriving
from core_engine.lab.measured import run_at_once
from core_engine.lab.timed import TimedExecutor
from core_engine.lab.workloads import poisson, requests, uniform_lengths
from core_engine.linear_table import LinearTable
from core_engine.loading import load_executor, measure_linears, prepare_model

_SEED = 0
_UNLOADED = 1e-6  # requests/s, at which none meets another
_WARM_UP_REQUESTS = 4


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A model as far as a simulation needs to know it: `linear` are the seconds of its own linear layers."""

    name: str
    dtype: str
    vocab_size: int
    linear: LinearTable


class Rates:
    """Answers to the same requests, with the same gaps stretched to the rate, under any policies.

    The model is loaded when something is measured for the first time; raises ModelError then.
    """

    def __init__(self, config: EngineConfig, num_requests: int) -> None:
        self._config = config
        self._lengths = list(islice(uniform_lengths(_SEED), num_requests))

    def describe(self) -> Described:
        """Load the model and measure its linear layers."""
        spec, linear = self._executor.spec, measure_linears(self._executor)
        return Described(name=spec.name, dtype=spec.dtype, vocab_size=spec.vocab_size, linear=linear)

    def warm_up(self) -> None:
        """Load the model and answer a few requests, so that what comes first isn't slower than the rest."""
        spec = self._executor.spec
        wanted = requests(self._lengths[:_WARM_UP_REQUESTS], seed=_SEED, vocab_size=spec.vocab_size, model=spec.name)
        run_at_once(Engine(self._with(()), self._executor), list(wanted))

    def measured(self, policies: tuple[str, ...], rate: float, alone: Sequence[Answered] = ()) -> list[Answered]:
        """On the model, in real time but for its pauses. `rate` in requests/s; infinite: all at once.

        What meets no other request is taken from `alone`. Raises EngineUnavailable where a request fails.
        """
        return self._measured(policies, rate, slice(None), alone)

    def alone_measured(self, which: slice) -> list[Answered]:
        """Each of these requests by itself, on the model."""
        return self._measured((), _UNLOADED, which)

    def simulated(
        self, model: Described, policies: tuple[str, ...], rate: float, alone: Sequence[Answered] = ()
    ) -> list[Answered]:
        """The same in virtual time, in which only linear layers take any, and memory is no bound."""
        clock = VirtualClock()
        executor = TimedExecutor(
            clock,
            cache(lambda rows, heads: model.linear.seconds([(rows, heads)])),
            name=model.name,
            vocab_size=model.vocab_size,
            num_sequences=self._config.sequence_limit,
        )
        config = msgspec.structs.replace(self._with(policies), block_size=executor.spec.block_size)
        wanted = requests(self._lengths, seed=_SEED, vocab_size=model.vocab_size, model=model.name)
        return run_arriving(Engine(config, executor, clock=clock), clock, poisson(wanted, rate, _SEED), alone)

    def alone_simulated(self, model: Described) -> list[Answered]:
        """Each request by itself, simulated."""
        return self.simulated(model, (), _UNLOADED)

    def _measured(
        self, policies: tuple[str, ...], rate: float, which: slice, alone: Sequence[Answered] = ()
    ) -> list[Answered]:
        spec, clock = self._executor.spec, SkippingClock()
        wanted = list(requests(self._lengths, seed=_SEED, vocab_size=spec.vocab_size, model=spec.name))[which]
        engine = Engine(self._with(policies), self._executor, clock=clock)
        return run_arriving(engine, clock, poisson(wanted, rate, _SEED), alone)

    @cached_property
    def _executor(self) -> Executor:
        return load_executor(self._config, prepare_model(self._config))

    def _with(self, policies: tuple[str, ...]) -> EngineConfig:
        return msgspec.structs.replace(self._config, policies=policies, seed=_SEED)
