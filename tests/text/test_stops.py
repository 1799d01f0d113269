"""StopStrings: the cut, whatever the split, and nothing of a stop let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.text import StopStrings

TEXT = st.text(alphabet="ab☃", max_size=30)
STOPS = st.lists(st.text(alphabet="ab☃", min_size=1, max_size=5), max_size=4)


def cut_of(text: str, stops: list[str]) -> int | None:
    """The definition, naively: the first character at which a stop is complete, less the longest such stop."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return end - max(map(len, complete))
    return None


def open_part(text: str, stops: list[str]) -> int:
    """Characters at the end of a text that may still become a stop."""
    parts = (stop[:size] for stop in stops for size in range(1, len(stop)))
    return max([len(part) for part in parts if text.endswith(part)], default=0)


@given(TEXT, STOPS, st.data())
def test_the_cut_is_the_same_for_every_split(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    matcher, emitted, hit = StopStrings(stops), "", False
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        released, hit = matcher.push(text[start:end])
        emitted += released
    emitted += matcher.flush()
    cut = cut_of(text, stops)
    assert hit == (cut is not None)
    assert emitted == (text if cut is None else text[:cut])


@given(TEXT, STOPS)
def test_exactly_what_may_become_a_stop_is_held(text: str, stops: list[str]) -> None:
    matcher, emitted = StopStrings(stops), ""
    for position, character in enumerate(text, start=1):
        released, hit = matcher.push(character)
        emitted += released
        if hit:
            break
        assert emitted == text[: position - open_part(text[:position], stops)]


@pytest.mark.parametrize(
    ("text", "stops", "expected", "matched"),
    [
        ("alpha O P Q omega", ["O P Q"], "alpha ", "O P Q"),
        ("one two three", ["three", "two"], "one ", "two"),
        ("abc", ["bc", "abc"], "", "abc"),
        ("aaab", ["aab"], "a", "aab"),
        ("no stop", ["", "zebra"], "no stop", None),
    ],
)
def test_the_earliest_cut_wins(text: str, stops: list[str], expected: str, matched: str | None) -> None:
    matcher = StopStrings(stops)
    emitted, hit = matcher.push(text)
    assert (emitted + matcher.flush(), hit, matcher.matched) == (expected, matched is not None, matched)


def test_nothing_comes_after_the_cut() -> None:
    matcher = StopStrings(["stop"])
    assert matcher.push("go stop go") == ("go ", True)
    assert matcher.push("more") == ("", True)
    assert matcher.flush() == ""


def test_a_stop_that_never_completes_costs_no_text() -> None:
    matcher = StopStrings(["abc" * 5])
    assert matcher.push("abcabcab") == ("", False)
    assert matcher.flush() == "abcabcab"
