"""Processor cores that several engines share."""

from __future__ import annotations

import os

_SPINS = "1000"


def wait_asleep() -> None:
    """Let the threads of engines that start from now on sleep soon when they wait for each other.

    OpenMP's spin for long, which is fastest for an engine alone; of several that compute at once, those that spin
    take the cores from those that work. Whoever has chosen how threads wait has chosen.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
