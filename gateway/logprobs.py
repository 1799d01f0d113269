"""Log-probabilities in the shapes of both endpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable

from core_engine import PromptLogprobs, TokenLogprobs
from core_engine.text import TextModel
from gateway.choice import TokenEntry
from gateway.protocol.chat import ChoiceLogprobs, TokenLogprob, TopLogprob
from gateway.protocol.completions import LegacyLogprobs
from gateway.protocol.fields import PromptTokenLogprob, PromptTokenLogprobs

LEAST = -9999.0  # stands for what JSON can't say


class LogprobWriter:
    """Writes entries with `num_top` rivals each. A special token that gives no text has no bytes either."""

    def __init__(self, text_model: TextModel, num_top: int, *, skip_special_tokens: bool) -> None:
        self._text_model = text_model
        self._num_top = num_top
        self._hidden = text_model.special_token_ids if skip_special_tokens else frozenset()

    def chat(self, entries: list[TokenEntry]) -> ChoiceLogprobs:
        """As `/v1/chat/completions` has them."""
        return ChoiceLogprobs([self._chat_entry(entry) for entry in entries])

    def legacy(self, entries: Iterable[TokenEntry]) -> LegacyLogprobs:
        """As `/v1/completions` has them; the rivals hold the token itself too."""
        text = self._text_model.token_text
        written = LegacyLogprobs([], [], [], [])
        for entry in entries:
            known = entry.logprobs
            written.tokens.append(text(entry.token_id))
            written.token_logprobs.append(None if known is None else finite(known.logprob))
            written.top_logprobs.append(None if known is None else self._legacy_rivals(entry.token_id, known))
            written.text_offset.append(entry.offset)
        return written

    def _chat_entry(self, entry: TokenEntry) -> TokenLogprob:
        assert entry.logprobs is not None
        rivals = [
            TopLogprob(self._text_model.token_text(token_id), finite(logprob), self._bytes(token_id))
            for token_id, logprob in entry.logprobs.top[: self._num_top]
        ]
        text = self._text_model.token_text(entry.token_id)
        return TokenLogprob(text, finite(entry.logprobs.logprob), self._bytes(entry.token_id), rivals)

    def _legacy_rivals(self, token_id: int, logprobs: TokenLogprobs) -> dict[str, float]:
        text = self._text_model.token_text
        rivals: dict[str, float] = {}
        for rival_id, logprob in logprobs.top[: self._num_top]:
            rivals.setdefault(text(rival_id), finite(logprob))  # of two that read alike, the more probable
        rivals.setdefault(text(token_id), finite(logprobs.logprob))
        return rivals

    def _bytes(self, token_id: int) -> list[int]:
        return [] if token_id in self._hidden else list(self._text_model.token_bytes(token_id))


def prompt_logprobs(
    text_model: TextModel, token_ids: list[int], told: list[PromptLogprobs], num_top: int
) -> PromptTokenLogprobs:
    """By token of a prompt, the token itself and its `num_top` rivals by id; None for the first, which has none."""
    written: PromptTokenLogprobs = [None]
    scores = (score for piece in told for score in piece.tokens())
    for token_id, (logprob, rank, rivals) in zip(token_ids[1:], scores, strict=True):
        entries = {token_id: PromptTokenLogprob(finite(logprob), rank, text_model.token_text(token_id))}
        for rival_rank, (rival_id, rival_logprob) in enumerate(rivals[:num_top], 1):
            if rival_id != token_id:
                entries[rival_id] = PromptTokenLogprob(
                    finite(rival_logprob), rival_rank, text_model.token_text(rival_id)
                )
        written.append(entries)
    return written


def finite(logprob: float) -> float:
    """The value within what JSON and a probability allow; rounding can give a tiny one above 0."""
    return min(max(logprob, LEAST), 0.0) if math.isfinite(logprob) else LEAST
