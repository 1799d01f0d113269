"""A collector for OTLP over HTTP: keeps what it is sent, decoded."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def attributes(owner: Any) -> dict[str, Any]:
    """The attributes of a span, a resource or a data point."""
    return {attribute.key: _value(attribute.value) for attribute in owner.attributes}


class Collector:
    """Listens on a free port between `start` and `stop`; holds every answer back while `answering` is not set."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.answering.set()
        answering = self.answering
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        kept = {"/v1/traces": self.traces, "/v1/metrics": self.metrics}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                answering.wait()
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                kept[self.path].append(_MESSAGES[self.path].FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.01))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_for_all(self, seconds: float) -> None:
        """Wait until both kinds of export have been answered."""
        deadline = time.monotonic() + seconds
        while not (self.traces and self.metrics):
            assert time.monotonic() < deadline, "an export is missing"
            time.sleep(0.01)

    def spans(self) -> list[Any]:
        return [
            span
            for message in self.traces
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resources(self) -> Iterable[dict[str, Any]]:
        return [attributes(spans.resource) for message in self.traces for spans in message.resource_spans]

    def last_metrics(self) -> dict[str, Any]:
        """The metrics of the last export, by name."""
        return {
            metric.name: metric
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
