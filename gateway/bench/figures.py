"""Figures of a measurement: percentiles, and the lines that a person reads."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
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


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Median and 99th."""
    return {f"p{percent}": percentile(values, percent) for percent in (50, 99)}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median of some runs, with the extremes."""
    return {"median": percentile(values, 50), "min": min(values), "max": max(values)}


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "processor": _processor(),
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


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
