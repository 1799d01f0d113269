"""ChoiceText: one choice of an answer, from sampled tokens to text that may be shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from core_engine import SequenceOutput, TokenLogprobs
from core_engine.text import IncrementalDetokenizer, StopStrings, TextModel

FinishReason = Literal["stop", "length"]


class TokenEntry(NamedTuple):
    """A sampled token with its log-probabilities; `offset` counts the characters of the text before it."""

    token_id: int
    logprobs: TokenLogprobs
    offset: int


@dataclass(slots=True)
class Piece:
    """What a choice has gained: text to show, the tokens behind it, and in the end the reason."""

    index: int
    text: str
    entries: list[TokenEntry] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def parts(self) -> list[Piece]:
        """Text and reason apart, as they go into chunks of a stream."""
        if self.finish_reason is None:
            return [self]
        last = Piece(self.index, "", finish_reason=self.finish_reason)
        if not self.text and not self.entries:
            last.token_ids = self.token_ids
            return [last]
        return [Piece(self.index, self.text, self.entries, self.token_ids), last]


def join_pieces(pieces: Iterable[Piece]) -> dict[int, Piece]:
    """Each choice as a whole, by its index."""
    whole: dict[int, Piece] = {}
    for piece in pieces:
        choice = whole.setdefault(piece.index, Piece(piece.index, ""))
        choice.text += piece.text
        choice.entries += piece.entries
        choice.token_ids += piece.token_ids
        choice.finish_reason = piece.finish_reason
    return whole


class ChoiceText:
    """Follows one sequence. The pieces joined are the same however its tokens arrive.

    Text that may become a stop string or is half a character is held back, and so is the entry of a token until a
    character that it begins is shown: a stop string drops the entries of what it cuts, any other end drops none.
    The token that ends a sequence counts but is neither text nor an entry.
    """

    def __init__(
        self,
        text_model: TextModel,
        index: int,
        *,
        stops: list[str],
        min_tokens: int,
        skip_special_tokens: bool,
    ) -> None:
        self.index = index
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self._detokenizer = IncrementalDetokenizer(text_model, skip_special_tokens=skip_special_tokens)
        self._stops = StopStrings(stops)
        self._min_tokens = min_tokens
        self._num_characters = 0  # made so far, held back or not
        self._num_shown = 0
        self._entries: list[TokenEntry] = []
        self._token_ids: list[int] = []

    def push(self, output: SequenceOutput) -> Piece | None:
        """Take new tokens, of which the last may end the sequence; None while there is nothing to show.

        The sequence must not have failed. What comes after the end is dropped.
        """
        if self.finish_reason is not None:
            return None
        text = ""
        for position, token_id in enumerate(output.token_ids):
            self.num_tokens += 1
            self._token_ids.append(token_id)
            if output.stop_token_id is not None and position == len(output.token_ids) - 1:
                break
            if output.logprobs:
                self._entries.append(TokenEntry(token_id, output.logprobs[position], self._num_characters))
            shown, stopped = self._show(self._detokenizer.push((token_id,)))
            text += shown
            if stopped:
                return self._end(text, "stop")
        if output.finish_reason is None:
            return self._piece(text) if text else None
        shown, stopped = self._show(self._detokenizer.flush())
        text += shown
        if stopped:
            return self._end(text, "stop")
        text += self._stops.flush()
        return self._end(text, "length" if output.finish_reason == "length" else "stop")

    def end_empty(self) -> Piece:
        """End a choice that was to have no tokens."""
        return self._end("", "length")

    def _show(self, text: str) -> tuple[str, bool]:
        self._num_characters += len(text)
        if self.num_tokens <= self._min_tokens:
            return text, False  # nothing ends a choice before `min_tokens`
        return self._stops.push(text)

    def _piece(self, text: str) -> Piece:
        self._num_shown += len(text)
        entries = self._entries
        count = sum(entry.offset < self._num_shown for entry in entries)
        token_ids, self._token_ids = self._token_ids, []
        self._entries = entries[count:]
        return Piece(self.index, text, entries[:count], token_ids)

    def _end(self, text: str, reason: FinishReason) -> Piece:
        piece = self._piece(text)
        if self._stops.matched is None:
            piece.entries += self._entries
        piece.finish_reason = self.finish_reason = reason
        return piece
