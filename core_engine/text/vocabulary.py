"""TokenBytes: the bytes that each token stands for, whatever kind of tokenizer made it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from core_engine.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes(dict[int, bytes]):
    """Token id -> bytes, all worked out at once, so that no token is slower when it comes for the first time.

    Joined over the tokens of a text they are the UTF-8 bytes of that text *as a continuation*: a
    word that begins with a space keeps it, also in the first token, where `decode` would drop it
    (`leading_spaces` of them). One token may hold a part of a character only. Ids that the tokenizer
    doesn't know (rows that pad a model's vocabulary) stand for nothing.

    Raises ModelError for a decoder whose tokens have no bytes of their own.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        decoder = json.loads(tokenizer.to_str()).get("decoder")
        steps = _flatten(decoder)
        kinds = {step["type"] for step in steps}
        self._byte_level = "ByteLevel" in kinds
        self._byte_fallback = "ByteFallback" in kinds
        self._rewrites = [_rewrite(step) for step in steps] if steps else [lambda token: " " + token]
        self.leading_spaces = max([_leading_spaces(step) for step in steps], default=1)
        for token, token_id in tokenizer.get_vocab(with_added_tokens=False).items():
            self[token_id] = _spelled(token) if self._byte_level else self._bytes_of(token)
        for token_id, added in tokenizer.get_added_tokens_decoder().items():
            # In the alphabet that stands for bytes only the others are spelled.
            self[token_id] = added.content.encode() if self._byte_level else self._bytes_of(added.content)

    def __missing__(self, token_id: int) -> bytes:
        return b""

    def _bytes_of(self, token: str) -> bytes:
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for rewrite in self._rewrites:
            token = rewrite(token)
        return token.encode()


def _spelled(token: str) -> bytes:
    """The bytes that a token of byte-level BPE is spelled with."""
    try:
        return bytes(map(BYTE_OF.__getitem__, token))
    except KeyError:
        return token.encode()


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]


def _rewrite(step: dict[str, Any]) -> Callable[[str], str]:
    """What one step of a decoder does to one token that isn't the first."""
    kind = step["type"]
    if kind in {"ByteLevel", "ByteFallback", "Fuse", "Strip"}:
        return lambda token: token
    if kind == "Replace" and "String" in step["pattern"]:
        return lambda token: token.replace(step["pattern"]["String"], step["content"])
    if kind == "Metaspace":
        return lambda token: token.replace(step["replacement"], " ")
    if kind == "WordPiece":
        prefix = step["prefix"]
        return lambda token: token.removeprefix(prefix) if token.startswith(prefix) else " " + token
    if kind == "BPEDecoder":
        return lambda token: token.replace(step["suffix"], " ")
    raise ModelError(
        f"tokenizer.json has a decoder step {kind!r} that can't be followed token by token; "
        "byte-level, byte-fallback, metaspace and word-piece decoders can"
    )


def _leading_spaces(step: dict[str, Any]) -> int:
    """Spaces that this step drops at the very start of a text."""
    kind = step["type"]
    if kind == "Strip" and step["content"] == " ":
        return int(step["start"])
    return int(kind == "WordPiece" or (kind == "Metaspace" and step.get("prepend_scheme", "always") != "never"))


def _byte_alphabet() -> dict[str, int]:
    """The printable characters by which byte-level BPE writes bytes (GPT-2, 2019)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(256 + offset): byte for offset, byte in enumerate(rest)})
    return alphabet


BYTE_OF = _byte_alphabet()
