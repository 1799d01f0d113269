"""Vocabulary: the bytes of every token, which is all that constrained decoding must know of a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from core_engine.grammars.source import invalid_grammar

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from core_engine.text import TextModel


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """`tokens[i]` are the bytes of token i as a continuation of text; tokens without bytes are never allowed.

    Special tokens stand for no text: only a grammar that names one allows it.
    """

    tokens: list[bytes]
    special_token_ids: list[int]
    eos_token_ids: list[int]

    @classmethod
    def of(cls, text_model: TextModel, vocab_size: int, eos_token_ids: tuple[int, ...]) -> Vocabulary:
        """The vocabulary of a model whose logits are `vocab_size` wide."""
        return cls(
            tokens=[text_model.token_bytes(token_id) for token_id in range(vocab_size)],
            special_token_ids=sorted(token for token in text_model.special_token_ids if token < vocab_size),
            eos_token_ids=list(eos_token_ids),
        )

    def prepare(self) -> LLTokenizer:
        """The library's form, in a tenth of a second or more; raises InvalidRequest where no output can end."""
        from llguidance import LLTokenizer

        if not self.eos_token_ids:
            raise invalid_grammar("this model has no end of sequence")

        return LLTokenizer(_Wrapper(self), n_vocab=len(self.tokens), eos_token=self.eos_token_ids)  # type: ignore[arg-type]


class _Wrapper:
    """What LLTokenizer asks of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.tokens
        self.special_token_ids = vocabulary.special_token_ids
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self._by_bytes = {token: token_id for token_id, token in enumerate(self.tokens) if token}
        for special in self.special_token_ids:
            self._by_bytes.pop(self.tokens[special], None)
        self._longest = max(map(len, self._by_bytes), default=1)

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokens whose bytes joined are the text, the longest first; a model's own tokenizer may add spaces."""
        rest = text.encode() if isinstance(text, str) else text
        found = []
        while rest:
            for length in range(min(len(rest), self._longest), 0, -1):
                if (token_id := self._by_bytes.get(rest[:length])) is not None:
                    found.append(token_id)
                    break
            else:
                return found
            rest = rest[length:]
        return found
