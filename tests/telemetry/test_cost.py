"""What telemetry costs, in calls: the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from gateway.telemetry import Telemetry
from tests.telemetry.samples import MODEL, HandClock, iteration, outcome, ready


def num_calls(action: Callable[[], object]) -> int:
    """How many Python functions run in `action`, itself left out."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    gc.disable()  # a collection calls whoever listens for it
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls - 1


def test_a_token_costs_a_handful_of_calls(telemetry: Telemetry, clock: HandClock) -> None:
    request = telemetry.request("chat", MODEL, {})
    request.tokens(1)
    assert num_calls(lambda: request.tokens(1)) <= 4


def test_an_iteration_costs_the_same_for_any_number_of_sequences(telemetry: Telemetry) -> None:
    telemetry.observe(MODEL, ready())
    few, many = (iteration(num_outputs=count, decode_tokens=count) for count in (1, 256))
    telemetry.observe(MODEL, few)
    assert num_calls(lambda: telemetry.observe(MODEL, few)) == num_calls(lambda: telemetry.observe(MODEL, many))


def test_off_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    telemetry = Telemetry()
    telemetry.start()
    telemetry.add_model(MODEL)
    request = telemetry.request("chat", MODEL, {}, max_tokens=5)
    assert num_calls(lambda: telemetry.observe(MODEL, iteration(num_outputs=64))) <= 3  # two of them build the message
    assert num_calls(lambda: request.tokens(1)) <= 2
    assert telemetry.request("chat", MODEL, {}) is request
    request.submitted()
    request.first_token()
    request.finish(outcome())
    request.error("too_late")
    assert telemetry.metrics_text()[0] == b""
    telemetry.shutdown()


def test_without_an_exporter_no_span_is_made(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a span was made")

    monkeypatch.setattr("opentelemetry.sdk.trace.Tracer.start_span", refuse)
    request = telemetry.request("chat", MODEL, {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"})
    request.tokens(1)
    request.finish(outcome())
