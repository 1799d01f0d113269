"""Figures of a measurement: percentiles, and the lines that a person reads."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }


def rounded(value: Any) -> Any:
    """Numbers to four digits, all the way down."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value
