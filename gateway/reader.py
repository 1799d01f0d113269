"""Reader: tells what the text of an answer is made of, while it comes."""

from __future__ import annotations

from typing import Protocol

from gateway.deltas import AnswerDelta, TextDelta


class Reader(Protocol):
    """Reads one choice. What it gives, joined, is the same however the text was split."""

    @property
    def num_held(self) -> int:
        """Characters of which it isn't decided yet what they are."""
        ...

    @property
    def satisfied(self) -> bool:
        """Whether the answer is as long as it may be; nothing is read any more."""
        ...

    def push(self, text: str) -> list[AnswerDelta]:
        """Take more text."""
        ...

    def end(self) -> list[AnswerDelta]:
        """Decide about what is held; no text follows."""
        ...


class PlainReader:
    """Takes all text for what the assistant says."""

    num_held = 0
    satisfied = False

    def push(self, text: str) -> list[AnswerDelta]:
        """Text is text."""
        return [TextDelta(text)]

    def end(self) -> list[AnswerDelta]:
        """Nothing was held."""
        return []
