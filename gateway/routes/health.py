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


class VersionAnswer(msgspec.Struct, frozen=True):
    """The version of this program."""

    version: str


def health_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that need no body."""
    version = VersionAnswer(importlib.metadata.version("jitney"))

    @get("/health")
    async def health() -> ASGIResponse:
        """Whether the process should live: all is well unless the engine failed for good."""
        return json_response(StatusAnswer(gateway.state), status=503 if gateway.state == "failed" else 200)

    @get("/ready")
    async def ready() -> ASGIResponse:
        """Whether requests should be sent here."""
        gateway.serving()
        return json_response(StatusAnswer("ready"))

    @get(["/version", "/v1/version"])
    async def show_version() -> ASGIResponse:
        return json_response(version)

    @get("/metrics")
    async def metrics() -> ASGIResponse:
        text, content_type = await asyncio.to_thread(gateway.telemetry.metrics_text)
        return ASGIResponse(body=text, headers={"content-type": content_type})

    return [health, ready, show_version, metrics]
