"""Setbacks: what kept requests from going on, noted when it changes, for their traces."""

from __future__ import annotations

from typing import Literal

from core_engine.messages import Setback
from core_engine.request import Sequence
from core_engine.state import EngineState

_MOST = 64  # of one request: a gate's reason may change in every iteration


class Setbacks:
    """Compares preemptions and holds with what is known; an iteration that changes nothing costs next to nothing."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._held: dict[int, str] = {}

    def note(self, held: dict[int, str]) -> None:
        """Once an iteration, when all decisions are made: `held` is sequence id to policy and reason.

        One that isn't in `held` may just not have been looked at, so that is no change.
        """
        state = self._state
        for sequence_id, cause in state.preempted.items():
            if (sequence := state.get(sequence_id)) is not None:
                sequence.last_hold = ""
                self._add(sequence, "preempted", cause)
        if held == self._held:
            return
        for sequence_id, cause in held.items():
            if cause == self._held.get(sequence_id):
                continue
            sequence = state.get(sequence_id)
            if sequence is not None and sequence.last_hold != cause:
                sequence.last_hold = cause
                self._add(sequence, "held", cause)
        self._held = held

    def _add(self, sequence: Sequence, kind: Literal["preempted", "held"], cause: str) -> None:
        setbacks = self._state.requests[sequence.request_id].setbacks
        if len(setbacks) < _MOST:
            seconds = self._state.now - sequence.arrival_seconds
            setbacks.append(Setback(seconds, kind, cause, sequence.sample_index))
