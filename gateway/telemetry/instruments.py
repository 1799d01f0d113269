"""The instruments of all models: each exists once, and reads the numbers of every model under its own label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from gateway.telemetry.engine import EngineNumbers
from gateway.telemetry.names import METRICS, instrument_name

# Read from whoever runs batches, not from the engine.
BATCH_GAUGES = ("batch_lines_running", "batch_lines_waiting")


class Instruments:
    """Creates every instrument of METRICS but the one of TokenLatencies; models come and go meanwhile."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._models: dict[str, EngineNumbers] = {}
        self._names: dict[str, str] = {}
        self.batch_lines: Callable[[str], tuple[int, int]] = lambda _: (0, 0)
        self.histograms = {
            key: meter.create_histogram(instrument_name(key), metric.unit, metric.description)
            for key, metric in METRICS.items()
            if metric.kind == "histogram" and key != "inter_token_latency"
        }
        for key, metric in METRICS.items():
            if metric.kind != "histogram":
                self._create_observable(key)

    def add(self, model: str, aliases: Iterable[str], engine_state: Callable[[], str]) -> None:
        """Begin the numbers of a model; clients may call it by the aliases too."""
        self._models[model] = EngineNumbers(model, engine_state, self.histograms)
        self._names |= dict.fromkeys([model, *aliases], model)

    def remove(self, model: str) -> None:
        """Forget a model that is gone."""
        self._models.pop(model, None)
        self._names = {alias: name for alias, name in self._names.items() if name != model}

    def of(self, model: str) -> EngineNumbers | None:
        """The numbers of a model, if it is there."""
        return self._models.get(model)

    def served_name(self, name: str) -> str | None:
        """The model that clients mean by a name; None where there is none, so that no made-up name is a label."""
        return self._names.get(name)

    def _create_observable(self, key: str) -> None:
        def callback(_: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, {**labels, **numbers.labels})
                for model, numbers in list(self._models.items())
                for value, labels in self._read(key, model, numbers)
            ]

        metric = METRICS[key]
        gauge, counter = self._meter.create_observable_gauge, self._meter.create_observable_counter
        create = counter if metric.kind == "counter" else gauge
        create(instrument_name(key), [callback], metric.unit, metric.description)

    def _read(self, key: str, model: str, numbers: EngineNumbers) -> Iterable[tuple[float, Mapping[str, Any]]]:
        if key in BATCH_GAUGES:
            return [(self.batch_lines(model)[BATCH_GAUGES.index(key)], {})]
        return numbers.reads[key]()
