"""StopStrings: where a client's stop strings cut a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the first stop string, and never a part of one.

    The stop that is complete first cuts; of several complete at the same character, the one that
    began earliest. So the cut doesn't depend on how the text was split. Each stop is followed with
    the automaton of Knuth, Morris and Pratt: constant cost per character, however long the stops.

    `matched` is the stop that cut, None before. Empty stop strings are left out.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, _failure(stop)) for stop in stops if stop]
        self._states = [0] * len(self._stops)  # characters of each stop that the text ends with
        self._held = ""  # the end of the text that may become a stop
        self.matched: str | None = None

    @property
    def num_held(self) -> int:
        """Characters that are held back."""
        return len(self._held)

    def push(self, text: str) -> tuple[str, bool]:
        """Take more text; return what may be emitted now, and whether a stop has been hit."""
        if self.matched is not None:
            return "", True
        if not self._stops:
            return text, False
        known = self._held + text
        for position in range(len(self._held), len(known)):
            if stop := self._advance(known[position]):
                self.matched, self._held = stop, ""
                return known[: position + 1 - len(stop)], True
        emitted = len(known) - max(self._states)
        self._held = known[emitted:]
        return known[:emitted], False

    def flush(self) -> str:
        """Return what was held back, at the end of a text that no stop has cut; the next text begins anew."""
        held, self._held = self._held, ""
        self._states = [0] * len(self._stops)
        return held

    def _advance(self, character: str) -> str | None:
        """Follow one character; return the longest stop that it completes."""
        complete = ""
        for index, (stop, failure) in enumerate(self._stops):
            state = self._states[index]
            while state and stop[state] != character:
                state = failure[state - 1]
            state += stop[state] == character
            self._states[index] = state
            if state == len(stop) and state > len(complete):
                complete = stop
        return complete or None


def _failure(stop: str) -> list[int]:
    """For each prefix of a stop, the length of the longest proper prefix that also ends it."""
    failure = [0] * len(stop)
    state = 0
    for position in range(1, len(stop)):
        while state and stop[position] != stop[state]:
            state = failure[state - 1]
        state += stop[position] == stop[state]
        failure[position] = state
    return failure
