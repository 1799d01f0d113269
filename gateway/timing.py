"""`Server-Timing`: where the time of a request went, for its client."""

from __future__ import annotations

from collections.abc import Iterable

from core_engine import Outcome


def server_timing(outcomes: Iterable[Outcome | None]) -> dict[str, str]:
    """The header, in milliseconds by phase; of several prompts the longest of each. Nothing where none ran."""
    longest: dict[str, float] = {}
    for outcome in outcomes:
        if outcome is None:
            continue
        phases = {"queue": outcome.queue_seconds, "prefill": outcome.prefill_seconds, "decode": outcome.decode_seconds}
        for phase, seconds in phases.items():
            if seconds is not None:
                longest[phase] = max(longest.get(phase, 0.0), seconds)
    if not longest:
        return {}
    return {"server-timing": ", ".join(f"{phase};dur={1000 * seconds:.1f}" for phase, seconds in longest.items())}
