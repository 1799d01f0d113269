from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gateway.telemetry import Telemetry
from tests.telemetry.samples import MODEL, HandClock


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine exports its own telemetry to is not for these tests."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def telemetry(clock: HandClock) -> Iterator[Telemetry]:
    telemetry = Telemetry(clock=clock)
    telemetry.start()
    telemetry.add_model(MODEL)
    yield telemetry
    telemetry.shutdown()
