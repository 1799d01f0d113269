"""Where a request's time went, as its client is told."""

from __future__ import annotations

from core_engine import FirstTokenTiming, Outcome
from gateway.timing import timing_of_answer, timing_of_stream


def outcome(queue: float | None, prefill: float | None, decode: float | None) -> Outcome:
    return Outcome(
        request_id="r", finish_reason="stop", queue_seconds=queue, prefill_seconds=prefill, decode_seconds=decode
    )


def test_phases_are_in_milliseconds() -> None:
    assert timing_of_answer([outcome(0.0125, 0.1, 2.0)]) == {
        "server-timing": "queue;dur=12.5, prefill;dur=100.0, decode;dur=2000.0"
    }


def test_of_several_prompts_the_longest_of_each_phase_counts() -> None:
    timing = timing_of_answer([outcome(0.001, 0.3, 0.2), None, outcome(0.002, 0.1, None)])
    assert timing == {"server-timing": "queue;dur=2.0, prefill;dur=300.0, decode;dur=200.0"}


def test_what_never_ran_has_no_timing() -> None:
    assert timing_of_answer([None]) == {}
    assert timing_of_answer([outcome(None, None, None)]) == {}


def test_a_stream_tells_the_way_to_its_first_token() -> None:
    timings = [FirstTokenTiming(0.001, 0.25), FirstTokenTiming(0.003, 0.125)]
    assert timing_of_stream(timings) == {"server-timing": "queue;dur=3.0, prefill;dur=250.0"}
    assert timing_of_stream([]) == {}
