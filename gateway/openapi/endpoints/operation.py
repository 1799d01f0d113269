"""What probes, autoscalers, dashboards and readers ask: `/health`, `/ready`, `/version`, `/metrics`, this document."""

from __future__ import annotations

from typing import Any

from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.openapi.endpoints.generation import MODEL
from gateway.routes.health import HealthAnswer, StatusAnswer, VersionAnswer

_FAMILY = "Operation"
_METRICS = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="smollm2"} 2.0\n'

OPERATION = (
    Endpoint(
        method="get",
        path="/health",
        name="health",
        family=_FAMILY,
        summary="Whether the process should live",
        access="open",
        answers={
            200: Answer("At least one model lives", Content(HealthAnswer, HealthAnswer("ready", {MODEL: "ready"}))),
            503: Answer("All failed for good", Content(HealthAnswer, HealthAnswer("failed", {MODEL: "failed"}))),
        },
    ),
    Endpoint(
        method="get",
        path="/ready",
        name="ready",
        family=_FAMILY,
        summary="Whether requests should be sent here",
        access="open",
        answers={200: Answer("They should", Content(StatusAnswer, StatusAnswer("ready")))},
        errors=(503,),
    ),
    Endpoint(
        method="get",
        path="/version",
        also_at="/v1/version",
        name="show_version",
        family=_FAMILY,
        summary="The version of this program",
        answers={200: Answer("The version", Content(VersionAnswer, VersionAnswer("0.1.0")))},
    ),
    Endpoint(
        method="get",
        path="/metrics",
        name="metrics",
        family=_FAMILY,
        summary="Metrics for Prometheus",
        answers={200: Answer("Text in the format of Prometheus", Content(str, _METRICS, "text/plain"))},
    ),
    Endpoint(
        method="get",
        path="/openapi.json",
        name="openapi",
        family=_FAMILY,
        summary="This document",
        access="open",
        answers={200: Answer("OpenAPI 3.1", Content(dict[str, Any], {"openapi": "3.1.0"}))},
    ),
    Endpoint(
        method="get",
        path="/docs",
        name="docs",
        family=_FAMILY,
        summary="This document as a page",
        access="open",
        answers={200: Answer("A page without scripts", Content(str, "<!doctype html>", "text/html"))},
    ),
)
