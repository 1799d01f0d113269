"""The runs behind the curves of capacity: simulated ones, and those on the model, in as many turns as it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from core_engine import EngineConfig
from core_engine.lab.arriving import Answered
from core_engine.lab.rates import Described, Rates
from gateway.bench.kept import Kept, WrongFile

_ALONE = 8  # requests that are measured by themselves in one go


class TimeOver(Exception):
    """A measurement is missing, and the turn is over."""


class Runs:
    """Each run is made once, or not at all where `path` has it from an earlier turn.

    Raises WrongFile where `path` holds what was measured with another configuration. Nothing is measured any more
    once `minutes` have gone by since this was made; None: no bound.
    """

    def __init__(
        self,
        config: EngineConfig,
        num_requests: int,
        *,
        path: Path | None,
        force: bool,
        minutes: float | None,
        progress: Callable[[str], None],
        rates: Rates | None = None,
    ) -> None:
        """`rates`: others than those of this configuration, for tests."""
        self.kept = Kept(path, force=force)
        self.num_requests = num_requests
        self._config = config
        self._rates = rates or Rates(config, num_requests)
        self._progress = progress
        self._deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._is_warm = False
        self._check_configuration(path)
        self.model = self.kept.measured("model", Described, self._describe)
        self._alone_simulated = self.kept.computed(
            f"simulated {num_requests} alone", list[Answered], lambda: self._rates.alone_simulated(self.model)
        )
        self._alone: list[Answered] = []

    def alone_simulated(self) -> list[Answered]:
        """Each request by itself, simulated."""
        return self._alone_simulated

    def simulated(self, policies: tuple[str, ...], rate: float) -> list[Answered]:
        """At that rate, in virtual time."""
        return self.kept.computed(
            f"simulated {self.num_requests} {' '.join(policies)} {rate!r}",
            list[Answered],
            lambda: self._rates.simulated(self.model, policies, rate, self._alone_simulated),
        )

    def alone_measured(self) -> list[Answered]:
        """Each request by itself, on the model; raises TimeOver, EngineUnavailable and Disturbed."""
        if not self._alone:
            answers: list[Answered] = []
            for first in range(0, self.num_requests, _ALONE):
                which = slice(first, min(first + _ALONE, self.num_requests))
                what = f"requests {which.start + 1} to {which.stop}, each by itself"
                answers += self._measured(what, lambda which=which: self._rates.alone_measured(which))  # type: ignore[misc]
            self._alone = answers
        return self._alone

    def measured(self, name: str, policies: tuple[str, ...], rate: float) -> list[Answered]:
        """At that rate, on the model; raises TimeOver, EngineUnavailable and Disturbed."""
        load = "all at once" if math.isinf(rate) else f"{rate!r} requests/s"
        what = f"{self.num_requests} of {name}, {' '.join(policies) or 'default policies'}, {load}"
        return self._measured(what, lambda: self._rates.measured(policies, rate, self._alone))

    def _measured(self, key: str, measure: Callable[[], list[Answered]]) -> list[Answered]:
        if key not in self.kept:
            if time.monotonic() >= self._deadline:
                raise TimeOver
            if not self._is_warm:
                self._progress("the model")
                self._rates.warm_up()
                self._is_warm = True
            self._progress(key)
        return self.kept.measured(key, list[Answered], measure)

    def _describe(self) -> Described:
        self._progress("the model and its linear layers")
        return self._rates.describe()

    def _check_configuration(self, path: Path | None) -> None:
        wanted = msgspec.json.decode(msgspec.json.encode(self._config))
        found = self.kept.computed("configuration", dict, lambda: wanted)
        different = [name for name in wanted if found.get(name) != wanted[name]]
        if different:
            name = different[0]
            raise WrongFile(
                f"{path} was measured with {name} {found.get(name)!r}, not {wanted[name]!r}; name another file"
            )
