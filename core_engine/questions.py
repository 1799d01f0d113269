"""What an operator asks of a running engine: which policies, and why a request is where it is."""

from __future__ import annotations

from core_engine.deciding import Deciding
from core_engine.messages import PolicyReport, RequestReport, SequenceReport
from core_engine.panel import Panel
from core_engine.request import Sequence, Status
from core_engine.state import EngineState
from core_engine.swapping import Swapping


class Questions:
    """Answers between two iterations; changes nothing."""

    def __init__(self, state: EngineState, panel: Panel, deciding: Deciding, swapping: Swapping) -> None:
        self._state = state
        self._panel = panel
        self._deciding = deciding
        self._swapping = swapping

    def policies(self) -> PolicyReport:
        """What is in force."""
        return PolicyReport(
            version=self._panel.version,
            on_probation=self._swapping.on_probation,
            policies=self._swapping.describe(),
            history=list(self._swapping.history),
        )

    def request(self, request_id: str) -> RequestReport | None:
        """Where its sequences stand; None for a request that isn't here (any more)."""
        known = self._state.requests.get(request_id)
        if known is None:
            return None
        first = known.sequences[0]
        return RequestReport(
            request_id=request_id,
            tenant=first.tenant,
            class_name=first.class_name,
            waited_iterations=self._state.iteration - first.arrival_iteration,
            waited_seconds=self._state.now - first.arrival_seconds,
            sequences=[self._sequence(sequence) for sequence in known.sequences],
        )

    def _sequence(self, sequence: Sequence) -> SequenceReport:
        place: int | None = None
        predicted: float | None = None
        if sequence.status is Status.WAITING:
            queue = self._state.waiting[sequence.class_name, sequence.tenant]
            place = queue.place(sequence)
            rate = self._state.requests_per_second
            predicted = place / rate if rate > 0 else None
        return SequenceReport(
            sample_index=sequence.sample_index,
            state=sequence.status.value,
            num_prompt_tokens=sequence.num_prompt_tokens,
            num_computed_tokens=sequence.num_computed_tokens,
            num_output_tokens=sequence.num_output_tokens,
            num_preemptions=sequence.num_preemptions,
            place=place,
            held_by=self._deciding.held.get(sequence.id),
            predicted_start_seconds=predicted,
        )
