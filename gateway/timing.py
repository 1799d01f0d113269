"""`Server-Timing`: where the time of a request went, for its client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core_engine import FirstTokenTiming, Outcome


def timing_of_answer(outcomes: Iterable[Outcome | None]) -> dict[str, str]:
    """The header of a whole answer: its phases; of several prompts the longest of each. Nothing where none ran."""
    phases = [(o.queue_seconds, o.prefill_seconds, o.decode_seconds) for o in outcomes if o is not None]
    return _header(("queue", "prefill", "decode"), phases)


def timing_of_stream(timings: Iterable[FirstTokenTiming]) -> dict[str, str]:
    """The header of a stream that begins: how its first token came about. Nothing where there is none yet."""
    return _header(("queue", "prefill"), [(timing.queue_seconds, timing.prefill_seconds) for timing in timings])


def _header(names: tuple[str, ...], requests: Sequence[tuple[float | None, ...]]) -> dict[str, str]:
    """In milliseconds."""
    entries = []
    for name, phase in zip(names, zip(*requests, strict=True), strict=False):
        measured = [seconds for seconds in phase if seconds is not None]
        if measured:
            entries.append(f"{name};dur={1000 * max(measured):.1f}")
    return {"server-timing": ", ".join(entries)} if entries else {}
