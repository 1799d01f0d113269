from __future__ import annotations

import pytest

from core_engine import ConfigurationError
from gateway.telemetry.environment import otlp_wanted, sdk_disabled


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}, False, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "prometheus"}, True, False),
        ({"OTEL_METRICS_EXPORTER": "otlp,prometheus"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False, False),
    ],
)
def test_the_standard_variables_choose_what_is_exported(
    environment: dict[str, str], traces: bool, metrics: bool
) -> None:
    assert otlp_wanted("traces", environment) is traces
    assert otlp_wanted("metrics", environment) is metrics


def test_an_unknown_exporter_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"OTEL_TRACES_EXPORTER names zipkin; known are none, otlp"):
        otlp_wanted("traces", {"OTEL_TRACES_EXPORTER": "zipkin"})


def test_a_protocol_that_is_not_there_is_refused() -> None:
    wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(ConfigurationError, match=r"'grpc'; only 'http/protobuf'"):
        otlp_wanted("metrics", wanted)
    assert otlp_wanted("metrics", {**wanted, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"})


@pytest.mark.parametrize(("text", "disabled"), [("true", True), ("TRUE", True), ("false", False), ("", False)])
def test_the_sdk_can_be_disabled(text: str, disabled: bool) -> None:
    assert sdk_disabled({"OTEL_SDK_DISABLED": text}) is disabled
