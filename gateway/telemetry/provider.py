"""Telemetry: the one object that the gateway talks to about metrics and traces."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from core_engine import FromEngine
from gateway.telemetry.environment import otlp_wanted, sdk_disabled
from gateway.telemetry.instruments import Instruments
from gateway.telemetry.latency import PeriodicReader, PrometheusReader, TokenLatencies
from gateway.telemetry.names import METRICS, instrument_name
from gateway.telemetry.request import RequestAttributes, RequestMetrics, RequestSpan, SilentSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.trace import Tracer

SCOPE = "jitney"


class Telemetry:
    """Metrics of engine and requests, as Prometheus text and, where OTEL_* variables ask, by OTLP; traces by OTLP.

    Between `start` and `shutdown` it is on, unless OTEL_SDK_DISABLED is true; otherwise every call is
    taken and does nothing. Belongs to one thread but for `metrics_text`, which any may call.
    `clock` gives seconds that never go back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        self._meter_provider: MeterProvider | None = None
        self._tracer_provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self._instruments: Instruments | None = None
        self._token_latencies = TokenLatencies()
        self._requests: RequestMetrics | None = None
        self._silent = SilentSpan()

    def start(self) -> None:
        """Turn on. ConfigurationError where an OTEL_* variable asks for what isn't there."""
        if sdk_disabled():
            return
        resource = _resource()
        readers: list[MetricReader] = [
            PrometheusReader(
                self._token_latencies, disable_target_info=True, scope_info_enabled=False, registry=self._registry
            )
        ]
        export_traces = otlp_wanted("traces")
        if otlp_wanted("metrics"):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            readers.append(PeriodicReader(self._token_latencies, OTLPMetricExporter()))
        if export_traces:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            self._tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            self._tracer = self._tracer_provider.get_tracer(SCOPE)
        self._meter_provider = MeterProvider(
            readers, resource, AlwaysOffExemplarFilter(), shutdown_on_exit=False, views=_views()
        )
        self._instruments = Instruments(self._meter_provider.get_meter(SCOPE))
        self._requests = RequestMetrics(self._instruments, self._token_latencies)

    def shutdown(self, timeout_seconds: float = 5.0) -> None:
        """Export what is left and turn off; what a collector has not taken by then is lost."""
        providers = [provider for provider in (self._tracer_provider, self._meter_provider) if provider is not None]
        self._tracer_provider = self._meter_provider = None
        self._tracer = self._instruments = self._requests = None
        # Against a collector that is down the exporters would try for much longer.
        threads = [threading.Thread(target=provider.shutdown, daemon=True) for provider in providers]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + timeout_seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def add_model(
        self, model: str, aliases: Iterable[str] = (), *, engine_state: Callable[[], str] = lambda: "ready"
    ) -> None:
        """Begin the metrics of a model; `engine_state` answers "ready" while its engine serves."""
        if self._instruments is not None:
            self._instruments.add(model, aliases, engine_state)

    def remove_model(self, model: str) -> None:
        """End the metrics of a model that is gone."""
        self._token_latencies.remove(model)
        if self._instruments is not None:
            self._instruments.remove(model)

    def watch_batches(self, lines: Callable[[str], tuple[int, int]]) -> None:
        """Ask `lines`, from any thread, how many lines of batches for a model have a seat, and how many wait."""
        if self._instruments is not None:
            self._instruments.batch_lines = lines

    def observe(self, model: str, message: FromEngine) -> None:
        """Take in one message of a model's engine, in the order they come."""
        if self._instruments is not None and (numbers := self._instruments.of(model)) is not None:
            numbers.observe(message)

    def request(
        self, operation: str, model: str, headers: Mapping[str, str], **attributes: Unpack[RequestAttributes]
    ) -> RequestSpan:
        """Follow a request from now on.

        `operation` is `chat`, `text_completion` or `embeddings`; `model` what the client asked for;
        `headers`, with names in lower case, may hold a W3C `traceparent`.
        """
        if self._requests is None:
            return self._silent
        return RequestSpan(self._requests, self._tracer, self._clock, operation, model, headers, attributes)

    def metrics_text(self) -> tuple[bytes, str]:
        """The Prometheus exposition of all metrics, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


def _resource() -> Resource:
    ours = {"service.name": "jitney", "service.version": importlib.metadata.version("jitney")}
    # Resource.create would let ours win over OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def _views() -> list[View]:
    """Export each metric under its names, each with its own labels and buckets."""
    return [
        View(
            instrument_name=instrument_name(key),
            name=stream.name,
            attribute_keys=set(stream.attributes),
            aggregation=ExplicitBucketHistogramAggregation(stream.buckets) if stream.buckets else None,
        )
        for key, metric in METRICS.items()
        for stream in metric.streams
    ]
