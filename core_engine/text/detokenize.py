"""IncrementalDetokenizer: text out of tokens as they come, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from core_engine.text.model import TextModel


class IncrementalDetokenizer:
    """Turns the tokens of one sequence into text, a few at a time, at a constant cost per token.

    All pushes and the flush joined are the text of all tokens as a continuation of the prompt, the
    same however the tokens were split. Bytes that form no character become U+FFFD. While
    `skip_special_tokens`, no special token gives text save those of `shown_token_ids`.
    """

    def __init__(
        self,
        text_model: TextModel,
        *,
        skip_special_tokens: bool = True,
        shown_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self._token_bytes = text_model.token_bytes_by_id
        self._hidden = text_model.special_token_ids - shown_token_ids if skip_special_tokens else frozenset()
        self._open = b""  # the beginning of a character

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the characters that these tokens complete; the bytes of an open one are kept."""
        table, hidden = self._token_bytes, self._hidden
        if len(token_ids) == 1:  # as nearly always
            (token_id,) = token_ids
            known = self._open if token_id in hidden else self._open + table[token_id]
        else:
            known = self._open + b"".join([table[token] for token in token_ids if token not in hidden])
        text, num_bytes = codecs.utf_8_decode(known, "replace", False)
        self._open = known[num_bytes:]
        return text

    def flush(self) -> str:
        """Return what was kept back, at the end of the sequence."""
        known, self._open = self._open, b""
        return codecs.utf_8_decode(known, "replace", True)[0]
