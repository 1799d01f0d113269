"""A histogram that is cheap enough for every token, and the readers that export it.

An instrument of OpenTelemetry takes several microseconds a measurement, which at some thousand tokens
a second is more than all the rest of telemetry. This one takes a binary search. It has no place
in the meter's own data, so each reader adds it to what it has collected.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
    ScopeMetrics,
)

from gateway.telemetry.names import METRICS, MODEL_LABEL


class TokenHistogram:
    """Seconds between the tokens of one model."""

    def __init__(self, bounds: tuple[float, ...], labels: Mapping[str, str]) -> None:
        self._bounds = bounds
        self._labels = labels
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf
        self._started_ns = time.time_ns()

    def record(self, seconds: float, count: int = 1) -> None:
        """Count `count` tokens that came `seconds` after the ones before them."""
        self._counts[bisect_left(self._bounds, seconds)] += count
        self._sum += seconds * count
        if seconds < self._min:
            self._min = seconds
        if seconds > self._max:
            self._max = seconds

    def collect(self) -> HistogramDataPoint | None:
        """What was recorded so far, if anything."""
        counts = tuple(self._counts)
        if not any(counts):
            return None
        return HistogramDataPoint(
            attributes=dict(self._labels),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=time.time_ns(),
            count=sum(counts),
            sum=self._sum,
            bucket_counts=counts,
            explicit_bounds=self._bounds,
            min=self._min,
            max=self._max,
        )


class TokenLatencies:
    """The histograms of all models, as the one stream of METRICS["inter_token_latency"]."""

    def __init__(self) -> None:
        self._metric = METRICS["inter_token_latency"]
        (self._stream,) = self._metric.streams
        self._of: dict[str, TokenHistogram] = {}

    def of(self, model: str) -> TokenHistogram:
        """The histogram of a model."""
        if model not in self._of:
            self._of[model] = TokenHistogram(self._stream.buckets, {MODEL_LABEL: model})
        return self._of[model]

    def remove(self, model: str) -> None:
        """Forget a model that is gone."""
        self._of.pop(model, None)

    def extend(self, collected: MetricsData) -> MetricsData:
        """`collected` with these histograms in its last scope; unchanged while nothing was recorded."""
        points = [point for histogram in list(self._of.values()) if (point := histogram.collect()) is not None]
        if not collected.resource_metrics or not points:
            return collected
        *resources, resource = collected.resource_metrics
        *scopes, scope = resource.scope_metrics
        metric = Metric(
            name=self._stream.name,
            description=self._metric.description,
            unit=self._metric.unit,
            data=Histogram(points, AggregationTemporality.CUMULATIVE),
        )
        extended: ScopeMetrics = replace(scope, metrics=[*scope.metrics, metric])
        return MetricsData([*resources, replace(resource, scope_metrics=[*scopes, extended])])


class _ExtendingReader(MetricReader):
    """Mixed into a reader: adds the token latencies to what it was given."""

    def __init__(self, token_latencies: TokenLatencies, *args: Any, **kwargs: Any) -> None:
        self._token_latencies = token_latencies
        super().__init__(*args, **kwargs)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        super()._receive_metrics(self._token_latencies.extend(metrics_data), timeout_millis, **kwargs)  # type: ignore[safe-super]


class PrometheusReader(_ExtendingReader, PrometheusMetricReader):
    """Collects when its registry is asked for text."""


class PeriodicReader(_ExtendingReader, PeriodicExportingMetricReader):
    """Collects and exports every OTEL_METRIC_EXPORT_INTERVAL milliseconds."""
