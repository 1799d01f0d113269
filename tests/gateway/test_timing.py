"""Where a request's time went, as its client is told."""

from __future__ import annotations

from core_engine import Outcome
from gateway.timing import server_timing


def outcome(queue: float | None, prefill: float | None, decode: float | None) -> Outcome:
    return Outcome(
        request_id="r", finish_reason="stop", queue_seconds=queue, prefill_seconds=prefill, decode_seconds=decode
    )


def test_phases_are_in_milliseconds() -> None:
    assert server_timing([outcome(0.0125, 0.1, 2.0)]) == {
        "server-timing": "queue;dur=12.5, prefill;dur=100.0, decode;dur=2000.0"
    }


def test_of_several_prompts_the_longest_of_each_phase_counts() -> None:
    timing = server_timing([outcome(0.001, 0.3, 0.2), None, outcome(0.002, 0.1, None)])
    assert timing == {"server-timing": "queue;dur=2.0, prefill;dur=300.0, decode;dur=200.0"}


def test_what_never_ran_has_no_timing() -> None:
    assert server_timing([None]) == {}
    assert server_timing([outcome(None, None, None)]) == {}
