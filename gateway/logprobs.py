"""Log-probabilities in the shapes of both endpoints."""

from __future__ import annotations

import math

from core_engine.text import TextModel
from gateway.choice import TokenEntry
from gateway.protocol.chat import ChoiceLogprobs, TokenLogprob, TopLogprob
from gateway.protocol.completions import LegacyLogprobs

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

    def legacy(self, entries: list[TokenEntry]) -> LegacyLogprobs:
        """As `/v1/completions` has them; the rivals hold the sampled token too."""
        text = self._text_model.token_text
        return LegacyLogprobs(
            tokens=[text(entry.token_id) for entry in entries],
            token_logprobs=[finite(entry.logprobs.logprob) for entry in entries],
            top_logprobs=[self._legacy_rivals(entry) for entry in entries],
            text_offset=[entry.offset for entry in entries],
        )

    def _chat_entry(self, entry: TokenEntry) -> TokenLogprob:
        rivals = [
            TopLogprob(self._text_model.token_text(token_id), finite(logprob), self._bytes(token_id))
            for token_id, logprob in entry.logprobs.top[: self._num_top]
        ]
        text = self._text_model.token_text(entry.token_id)
        return TokenLogprob(text, finite(entry.logprobs.logprob), self._bytes(entry.token_id), rivals)

    def _legacy_rivals(self, entry: TokenEntry) -> dict[str, float]:
        text = self._text_model.token_text
        rivals: dict[str, float] = {}
        for token_id, logprob in entry.logprobs.top[: self._num_top]:
            rivals.setdefault(text(token_id), finite(logprob))  # of two that read alike, the more probable
        rivals.setdefault(text(entry.token_id), finite(entry.logprobs.logprob))
        return rivals

    def _bytes(self, token_id: int) -> list[int]:
        return [] if token_id in self._hidden else list(self._text_model.token_bytes(token_id))


def finite(logprob: float) -> float:
    """The value within what JSON and a probability allow; rounding can give a tiny one above 0."""
    return min(max(logprob, LEAST), 0.0) if math.isfinite(logprob) else LEAST
