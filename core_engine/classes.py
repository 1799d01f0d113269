"""Classes of service: names with a priority, and the class that a request's own priority puts it into."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_CLASS = "standard"
CLASS_PRIORITIES: Mapping[str, int] = {"interactive": -10, DEFAULT_CLASS: 0, "batch": 10}  # lower is served earlier


def class_of(priority: int, priorities: Mapping[str, int] = CLASS_PRIORITIES) -> str:
    """The nearest class that is not more urgent than the priority; beyond the last, the last."""
    nearest = min((p for p in priorities.values() if p >= priority), default=max(priorities.values()))
    return next(name for name, p in priorities.items() if p == nearest)
