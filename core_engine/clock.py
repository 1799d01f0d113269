"""Time as the engine sees it: real, or virtual for simulations and tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of seconds that never goes backwards."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.perf_counter()


class VirtualClock:
    """A clock that moves only when told to, so that a run is the same every time."""

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now = start_seconds

    def now(self) -> float:
        """Virtual seconds so far."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by that many seconds, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"time can't go back by {-seconds} s")
        self._now += seconds
