"""What the standard OTEL_* variables ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from core_engine import ConfigurationError

Signal = Literal["traces", "metrics"]

_PROTOCOL = "http/protobuf"


def sdk_disabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether OTEL_SDK_DISABLED turns everything off, `/metrics` included."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def otlp_wanted(signal: Signal, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to export this signal by OTLP: an endpoint is named, or the exporter `otlp` is.

    The exporters read endpoint, headers, timeouts and the rest by themselves. ConfigurationError
    where an exporter or a protocol is asked for that isn't there.
    """
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    known = {"otlp", "none", "prometheus"} if signal == "metrics" else {"otlp", "none"}
    chosen = {name.strip() for name in environment.get(variable, "").split(",")} - {""}
    if unknown := chosen - known:
        raise ConfigurationError(f"{variable} names {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    endpoint = _first(environment, signal, "ENDPOINT")
    if not (endpoint or "otlp" in chosen) or (chosen and "otlp" not in chosen):
        return False
    protocol = _first(environment, signal, "PROTOCOL") or _PROTOCOL
    if protocol != _PROTOCOL:
        raise ConfigurationError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; only {_PROTOCOL!r} is supported")
    return True


def _first(environment: Mapping[str, str], signal: Signal, name: str) -> str:
    specific = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", "").strip()
    return specific or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()
