"""How GrammarChecker and its process talk: messages behind their length."""

from __future__ import annotations

LENGTH_BYTES = 4


def framed(message: bytes) -> bytes:
    """A message as it goes into a pipe."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def length_of(prefix: bytes) -> int:
    """The bytes that follow a prefix."""
    return int.from_bytes(prefix, "big")
