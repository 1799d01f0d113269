"""A histogram that is cheap enough for every token, and the readers that export it.

An instrument of OpenTelemetry takes several microseconds a measurement, which at some thousand tokens
a second is more than all the rest of telemetry. This one takes a binary search. It has no place
in the meter's own data, so each reader adds it to what it has collected.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable
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

from gateway.telemetry.names import METRICS


class TokenLatencies:
    """Seconds between tokens, as the one stream of METRICS["inter_token_latency"]."""

    def __init__(self, labels: Callable[[], dict[str, str]]) -> None:
        self._metric = METRICS["inter_token_latency"]
        (self._stream,) = self._metric.streams
        self._labels = labels
        self._bounds = self._stream.buckets
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf
        self._started_ns = time.time_ns()

    def record(self, seconds: float, count: int = 1) -> None:
        """Count `count` tokens that came `seconds` after the ones before them."""
        self._counts[bisect_left(self._bounds, seconds)] += count
        self._sum += seconds * count
        self._min = min(self._min, seconds)
        self._max = max(self._max, seconds)

    def extend(self, collected: MetricsData) -> MetricsData:
        """`collected` with this histogram in its last scope; unchanged while nothing was recorded."""
        counts = tuple(self._counts)
        if not collected.resource_metrics or not any(counts):
            return collected
        *resources, resource = collected.resource_metrics
        *scopes, scope = resource.scope_metrics
        extended: ScopeMetrics = replace(scope, metrics=[*scope.metrics, self._collect(counts)])
        return MetricsData([*resources, replace(resource, scope_metrics=[*scopes, extended])])

    def _collect(self, counts: tuple[int, ...]) -> Metric:
        point = HistogramDataPoint(
            attributes=self._labels(),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=time.time_ns(),
            count=sum(counts),
            sum=self._sum,
            bucket_counts=counts,
            explicit_bounds=self._bounds,
            min=self._min,
            max=self._max,
        )
        return Metric(
            name=self._stream.name,
            description=self._metric.description,
            unit=self._metric.unit,
            data=Histogram([point], AggregationTemporality.CUMULATIVE),
        )


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
