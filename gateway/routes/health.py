"""`/health`, `/ready`, `/version` and `/metrics`: what probes, autoscalers and dashboards ask."""

from __future__ import annotations

import asyncio
import importlib.metadata

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.responses import json_response
from gateway.state import Gateway


class StatusAnswer(msgspec.Struct, frozen=True):
    """How the server is: ready, or why it isn't."""

    status: str


class HealthAnswer(msgspec.Struct, frozen=True):
    """How the server is, and each of its models; `degraded` where some have failed and others haven't."""

    status: str
    models: dict[str, str]


class VersionAnswer(msgspec.Struct, frozen=True):
    """The version of this program."""

    version: str


def health_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that need no body."""
    version = VersionAnswer(importlib.metadata.version("jitney"))

    @get("/health")
    async def health() -> ASGIResponse:
        """Whether the process should live: all is well unless the engines of all models failed for good."""
        models = {model.name: model.state for model in gateway.models}
        has_failed = [state == "failed" for state in models.values()]
        if has_failed and all(has_failed):
            return json_response(HealthAnswer("failed", models), status=503)
        return json_response(HealthAnswer("degraded" if any(has_failed) else gateway.state, models))

    @get("/ready")
    async def ready() -> ASGIResponse:
        """Whether requests should be sent here."""
        gateway.require_ready()
        return json_response(StatusAnswer("ready"))

    @get(["/version", "/v1/version"])
    async def show_version() -> ASGIResponse:
        return json_response(version)

    @get("/metrics")
    async def metrics() -> ASGIResponse:
        text, content_type = await asyncio.to_thread(gateway.telemetry.metrics_text)
        return ASGIResponse(body=text, headers={"content-type": content_type})

    return [health, ready, show_version, metrics]
