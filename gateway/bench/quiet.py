"""Whether anything else computed while a measurement ran: then its figures say nothing."""

from __future__ import annotations

import time

import psutil

_FOREIGN_CORES = 0.1


class Disturbed(Exception):
    """Others computed during a measurement."""

    def __init__(self, foreign_cores: float) -> None:
        super().__init__(
            f"other processes took {foreign_cores:.2f} cores meanwhile, so the figures would say nothing; "
            "end them, or report all the same with --force"
        )


def is_quiet(foreign_cores: float) -> bool:
    """Whether others took less than a tenth of a core."""
    return foreign_cores < _FOREIGN_CORES


class Watch:
    """Counts the processor time of everything but this process and its children, from its making on."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy = _busy_seconds()
        self._own_before = self._own_seconds()

    def foreign_cores(self) -> float:
        """Cores' worth of work of others since then. Children must still run, or have been waited for."""
        busy = _busy_seconds() - self._busy
        own = self._own_seconds() - self._own_before
        return max(0.0, busy - own) / (time.perf_counter() - self._began)

    def _own_seconds(self) -> float:
        this = psutil.Process()
        times = this.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in this.children(recursive=True):
            try:
                used = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += used.user + used.system
        return float(total)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    # Linux counts the time of guests in that of users.
    return float(sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))
