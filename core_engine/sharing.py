"""Sharing: which blocks a sequence that is about to start finds already computed."""

from __future__ import annotations

from typing import NamedTuple

from core_engine.request import Sequence, Status
from core_engine.state import EngineState
from core_engine.view import SequenceView


class Match(NamedTuple):
    """What a starting sequence finds: `blocks` to reference, and one to copy where `copy` is set.

    `num_tokens` of its known tokens need no computation then. The last prompt token is always computed.
    `waits` says why the sequence can't start yet, where it can't.
    """

    blocks: list[int]
    num_tokens: int
    copy: int | None = None
    waits: str = ""


NO_MATCH = Match([], 0)


class Sharing:
    """Looks up blocks of live siblings first, then contents that the allocator remembers.

    Siblings (`n > 1`): the first computes the prompt, the others wait until that is done or it ends.
    """

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._found: dict[int, Match] = {}

    def forget(self) -> None:
        """A new iteration begins."""
        self._found.clear()

    def match(self, sequence: SequenceView) -> Match:
        """What the sequence would find if it started now; looked up once an iteration."""
        found = self._found.get(sequence.id)
        if found is None:
            found = self._found[sequence.id] = self._look_up(sequence.id)
        return found

    def leader(self, sequence: Sequence) -> Sequence:
        """The sibling that has to compute the prompt before this sequence can start; itself where none has."""
        if not self.match(sequence).waits:
            return sequence
        siblings = self._state.requests[sequence.request_id].sequences
        return next(other for other in siblings if other.status is not Status.FINISHED)

    def _look_up(self, sequence_id: int) -> Match:
        sequence = self._state.get(sequence_id)
        if sequence is None:
            return NO_MATCH
        return self._siblings(sequence) or self._remembered(sequence)

    def _siblings(self, sequence: Sequence) -> Match | None:
        if sequence.request.n == 1:
            return None
        leader: Sequence | None = None
        for other in self._state.requests[sequence.request_id].sequences:
            if other is sequence or other.status is Status.FINISHED:
                continue
            if other.status is Status.RUNNING and other.num_computed_tokens >= other.num_prompt_tokens:
                return self._of_sibling(sequence, other)
            if other.id < sequence.id and leader is None:
                leader = other
        return None if leader is None else Match([], 0, waits="engine: a sibling computes the prompt")

    def _of_sibling(self, sequence: Sequence, other: Sequence) -> Match:
        size = self._state.block_size
        shared_tokens = sequence.num_prompt_tokens - 1
        full, rest = divmod(shared_tokens, size)
        table = other.block_table
        return Match(table[:full], shared_tokens, table[full] if rest else None)

    def _remembered(self, sequence: Sequence) -> Match:
        if not sequence.block_hashes:
            return NO_MATCH
        size = self._state.block_size
        most = sequence.num_tokens - 1
        if sequence.scores_prompt:  # whose log-probabilities come of computing it, at least once
            most = min(most, sequence.max_computed_tokens)
        blocks = self._state.pool.match(sequence.block_hashes[: most // size])
        return Match(blocks, len(blocks) * size)
