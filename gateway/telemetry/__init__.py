"""Metrics and traces of the gateway, and through its messages of the engine."""

from __future__ import annotations

from gateway.telemetry.provider import Telemetry
from gateway.telemetry.request import RequestAttributes, RequestSpan

__all__ = ["RequestAttributes", "RequestSpan", "Telemetry"]
