"""FastEncoder: tiktoken over a model's own vocabulary, where it gives what the tokenizers library gives.

Both apply byte-level BPE, but tiktoken several times faster. It knows no pre-tokenizers, only one pattern, and merges
whatever pair makes a token, the one with the least id first; so it is used for tokenizers of that form alone, and
only after both agreed on a corpus.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import unicodedata
from typing import Any

import tiktoken
from tokenizers import Tokenizer

from core_engine.text.corpus import corpus
from core_engine.text.vocabulary import BYTE_OF

_log = logging.getLogger("jitney.text")

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Numbers are taken out first, so that white space before one stands at the end of its text.
_GPT2_BETWEEN_NUMBERS = _WORDS + r"|\s+(?=\p{N})|\s+(?!\S)|\s+"

# Longer ones, which nothing may split, could exhaust the stack of the pattern's matcher.
_LONG_RUN_CHARACTERS = 10_000
_TEXTS_AT_ONCE = 256  # encodings of all would take tens of megabytes
_RUN = re.compile(r"\s+|\S+")


class FastEncoder:
    """Encodes texts as the tokenizer would, without the tokens around them."""

    def __init__(self, description: dict[str, Any], pattern: str, ranks: dict[bytes, int]) -> None:
        self._needs_nfc = description["normalizer"] is not None
        self._end = max(ranks.values()) + 1
        # What the vocabulary has no token for is another's business, but tiktoken wants one for every byte.
        missing = (byte for number in range(256) if (byte := bytes([number])) not in ranks)
        self._encoding = tiktoken.Encoding(
            "model",
            pat_str=pattern,
            mergeable_ranks=ranks | {byte: self._end + 1_000_000 + place for place, byte in enumerate(missing)},
            special_tokens={token["content"]: token["id"] for token in description["added_tokens"]},
        )
        self._end = max(self._end, *(token["id"] + 1 for token in description["added_tokens"]), 0)

    def encode(self, text: str) -> list[int] | None:
        """The tokens of a text; None for one that must be left to the tokenizer itself."""
        if self._needs_nfc and not unicodedata.is_normalized("NFC", text):
            return None
        if len(text) >= _LONG_RUN_CHARACTERS and max(map(len, _RUN.findall(text))) >= _LONG_RUN_CHARACTERS:
            return None
        ids = self._encoding.encode(text, allowed_special="all", disallowed_special=())
        return ids if not ids or max(ids) < self._end else None


def fast_encoder(tokenizer: Tokenizer) -> FastEncoder | None:
    """An encoder that agrees with the tokenizer, or None."""
    description = json.loads(tokenizer.to_str())
    pattern, ranks = _pattern(description), _ranks(description)
    if pattern is None or ranks is None:
        return None
    try:
        encoder = FastEncoder(description, pattern, ranks)
    except ValueError as error:  # a pattern of a kind that only the other library knows
        _log.info("the tokenizer's pattern is left to itself: %s", error)
        return None
    texts = corpus([token["content"] for token in description["added_tokens"]], list(ranks))
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        some = texts[start : start + _TEXTS_AT_ONCE]
        for text, expected in zip(some, tokenizer.encode_batch_fast(some, add_special_tokens=False), strict=True):
            ids = encoder.encode(text)
            if ids is not None and ids != expected.ids:
                _log.info("tiktoken splits %r in another way, so it isn't used", text[:60])
                return None
    return encoder


def _pattern(description: dict[str, Any]) -> str | None:
    """One pattern that splits as the pre-tokenizers do; None where there is none."""
    before = description["pre_tokenizer"] or {}
    match before.get("pretokenizers", [before]):
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            return _GPT2
        case [
            {"type": "Digits", "individual_digits": bool(single)},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        ]:
            return (r"\p{N}|" if single else r"\p{N}+|") + _GPT2_BETWEEN_NUMBERS
        case [
            {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ]:
            return pattern
    return None


def _ranks(description: dict[str, Any]) -> dict[bytes, int] | None:
    """Bytes of each token to its id, where ids are in the order of merges; None where the model is of another kind."""
    model, added = description["model"], description["added_tokens"]
    plain = not any(model.get(key) for key in ("dropout", "unk_token", "continuing_subword_prefix", "byte_fallback"))
    if model["type"] != "BPE" or not plain or model.get("end_of_word_suffix"):
        return None
    if description["normalizer"] not in (None, {"type": "NFC"}) or not _are_plain(added):
        return None
    vocabulary: dict[str, int] = model["vocab"]
    merged = ["".join(pair if isinstance(pair, list) else pair.split(" ")) for pair in model["merges"]]
    ids = [vocabulary[token] for token in merged]
    if ids != sorted(ids):
        return None
    reachable = (
        vocabulary if model.get("ignore_merges") else [token for token in vocabulary if len(token) == 1] + merged
    )
    names = {token["content"] for token in added}
    try:
        return {
            bytes(BYTE_OF[character] for character in token): vocabulary[token]
            for token in reachable
            if token not in names
        }
    except KeyError:
        return None  # not spelled in the alphabet of bytes


def _are_plain(added: list[dict[str, Any]]) -> bool:
    """Whether these tokens are looked for as they are, and none can be taken for the beginning of another."""
    names = sorted(token["content"] for token in added)
    apart = not any(after.startswith(name) for name, after in itertools.pairwise(names))
    return apart and not any(token[key] for token in added for key in ("single_word", "lstrip", "rstrip"))
