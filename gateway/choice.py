"""ChoiceText: one choice of an answer, from sampled tokens to text that may be shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from core_engine import PromptLogprobs, SequenceOutput, TokenLogprobs
from core_engine.text import IncrementalDetokenizer, StopStrings, TextModel
from gateway.deltas import AnswerDelta, CallStart, TextDelta, joined
from gateway.reader import PlainReader, Reader

FinishReason = Literal["stop", "length", "tool_calls"]


class TokenEntry(NamedTuple):
    """A token with its log-probabilities, if any; `offset` counts the characters of the text before it."""

    token_id: int
    logprobs: TokenLogprobs | None
    offset: int


class Piece(msgspec.Struct):
    """What a choice has gained, the tokens behind it, and in the end the reason.

    A piece of the prompt instead has the text of the positions `prompt_tokens`, where it is echoed, and their scores.
    """

    index: int
    deltas: list[AnswerDelta]
    entries: list[TokenEntry] = []
    token_ids: list[int] = []
    finish_reason: FinishReason | None = None
    stop_string: str | None = None  # that ended it, with the reason
    prompt_tokens: range = range(0)
    prompt_logprobs: list[PromptLogprobs] = []

    @property
    def text(self) -> str:
        """What it says, calls and reasoning aside."""
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))

    @property
    def only_text(self) -> str | None:
        """The text of a piece that is nothing but one, as most are; None for any other."""
        if len(self.deltas) != 1 or self.entries or self.finish_reason is not None or self.prompt_tokens:
            return None
        (delta,) = self.deltas
        return delta.text if isinstance(delta, TextDelta) else None

    def parts(self) -> list[Piece]:
        """One piece for each delta and one for the reason, as they go into chunks of a stream."""
        if self.prompt_tokens:
            return [self]
        parts = [Piece(self.index, [delta]) for delta in self.deltas]
        if not parts and self.entries:
            parts.append(Piece(self.index, []))
        if self.finish_reason is not None:
            parts.append(Piece(self.index, [], finish_reason=self.finish_reason))
        if parts:
            parts[0].entries, parts[0].token_ids = self.entries, self.token_ids
        return parts


def join_pieces(pieces: Iterable[Piece]) -> dict[int, Piece]:
    """Each choice as a whole, by its index."""
    whole: dict[int, Piece] = {}
    for piece in pieces:
        choice = whole.setdefault(piece.index, Piece(piece.index, []))
        choice.deltas += piece.deltas
        choice.entries += piece.entries
        choice.token_ids += piece.token_ids
        choice.finish_reason, choice.stop_string = piece.finish_reason, piece.stop_string
        choice.prompt_tokens = range(max(choice.prompt_tokens.stop, piece.prompt_tokens.stop))
        choice.prompt_logprobs += piece.prompt_logprobs
    for choice in whole.values():
        choice.deltas = joined(choice.deltas)
    return whole


class ChoiceText:
    """Follows one sequence. The pieces joined are the same however its tokens arrive.

    `reader` tells text from reasoning and calls of tools. Stop strings are looked for in text only: they never cut
    a call, and what was said before a call and after it doesn't make one together.

    What may become a stop string, is half a character, or isn't understood yet is held back, and so is the entry of
    a token until a character that it begins is shown: a stop string drops the entries of what it cuts, any other end
    drops none. The token that ends a sequence counts but is neither text nor an entry. Of special tokens only
    `shown_token_ids` give text while `skip_special_tokens`. `first_offset` characters of the text go before. A choice
    that `is_plain` is never ended by its text.
    """

    def __init__(
        self,
        text_model: TextModel,
        index: int,
        *,
        stops: list[str],
        min_tokens: int,
        skip_special_tokens: bool,
        reader: Reader | None = None,
        shown_token_ids: frozenset[int] = frozenset(),
        first_offset: int = 0,
    ) -> None:
        self.index = index
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self._detokenizer = IncrementalDetokenizer(
            text_model, skip_special_tokens=skip_special_tokens, shown_token_ids=shown_token_ids
        )
        self._reader = reader or PlainReader()
        self._stops = StopStrings(stops)
        self.is_plain = not any(stops) and isinstance(self._reader, PlainReader)
        self._min_tokens = min_tokens
        self._num_characters = first_offset  # made so far, held back or not
        self._num_cut = 0  # of them, by a stop string
        self._has_calls = False
        self._deltas: list[AnswerDelta] = []
        self._entries: list[TokenEntry] = []
        self._token_ids: list[int] = []

    def push(self, output: SequenceOutput) -> Piece | None:
        """Take new tokens, of which the last may end the sequence; None while there is nothing to show.

        The sequence must not have failed. What comes after the end is dropped.
        """
        if self.finish_reason is not None:
            return None
        if self.is_plain and output.finish_reason is None and not output.logprobs:
            return self._push_plain(output.token_ids)
        for position, token_id in enumerate(output.token_ids):
            self.num_tokens += 1
            self._token_ids.append(token_id)
            if output.stop_token_id is not None and position == len(output.token_ids) - 1:
                break
            if output.logprobs:
                self._entries.append(TokenEntry(token_id, output.logprobs[position], self._num_characters))
            if self._read(self._detokenizer.push((token_id,))):
                return self._end("stop")
        if output.finish_reason is None:
            return self._piece() if self._deltas else None
        if self._read(self._detokenizer.flush()) or self._take(self._reader.end()):
            return self._end("stop")
        self._say(self._stops.flush())
        return self._end("length" if output.finish_reason == "length" else "stop")

    def _push_plain(self, token_ids: list[int]) -> Piece | None:
        """The same where text is nothing but text, as most is: nothing ends it, and nothing is told of its tokens."""
        self.num_tokens += len(token_ids)
        text = self._detokenizer.push(token_ids)
        if not text:
            self._token_ids += token_ids
            return None
        self._num_characters += len(text)
        if self._token_ids:
            token_ids = self._token_ids + token_ids
            self._token_ids = []
        return Piece(self.index, [TextDelta(text)], token_ids=token_ids)

    def end_empty(self) -> Piece:
        """End a choice that was to have no tokens."""
        return self._end("length")

    def _read(self, text: str) -> bool:
        """Whether the choice ends with this text."""
        self._num_characters += len(text)
        return bool(text) and (self._take(self._reader.push(text)) or self._reader.satisfied)

    def _take(self, deltas: list[AnswerDelta]) -> bool:
        """Whether a stop string ends the choice within these."""
        for delta in deltas:
            if not isinstance(delta, TextDelta):
                self._say(self._stops.flush())
                self._deltas.append(delta)
                self._has_calls |= isinstance(delta, CallStart)
            elif self.num_tokens <= self._min_tokens:
                self._say(delta.text)  # nothing ends a choice before `min_tokens`
            else:
                num_known = self._stops.num_held + len(delta.text)
                shown, stopped = self._stops.push(delta.text)
                self._say(shown)
                if stopped:
                    self._num_cut = num_known - len(shown)
                    return True
        return False

    def _say(self, text: str) -> None:
        if text:
            self._deltas.append(TextDelta(text))

    def _piece(self) -> Piece:
        deltas, self._deltas = joined(self._deltas), []
        token_ids, self._token_ids = self._token_ids, []
        return Piece(self.index, deltas, self._settled_entries() if self._entries else [], token_ids)

    def _settled_entries(self) -> list[TokenEntry]:
        """Take out those of the tokens of which a character is shown."""
        num_settled = self._num_characters - self._reader.num_held - self._stops.num_held - self._num_cut
        count = sum(entry.offset < num_settled for entry in self._entries)
        entries, self._entries = self._entries[:count], self._entries[count:]
        return entries

    def _end(self, reason: FinishReason) -> Piece:
        piece = self._piece()
        piece.stop_string = self._stops.matched
        if piece.stop_string is None:
            piece.entries += self._entries
        piece.finish_reason = self.finish_reason = "tool_calls" if self._has_calls and reason == "stop" else reason
        return piece
