"""Nesting: where a bracket is closed, in text that comes in pieces."""

from __future__ import annotations

import re

_INSIDE = {quote: re.compile(rf"[\\{quote}]") for quote in "\"'"}  # what matters in a string


class Nesting:
    """Follows brackets and strings, which stand in any of `quotes` with backslashes as escapes; checks nothing else.

    `depth` brackets are open already.
    """

    def __init__(self, quotes: str, depth: int = 0) -> None:
        self._depth = depth
        self._quote = ""  # that the open string began with
        self._escaped = False  # by a backslash at the end of the last piece
        self._outside = re.compile(rf"[\[\](){{}}{quotes}]")

    def find_end(self, text: str) -> int | None:
        """The position after the bracket that closes the outermost one, None where that comes later."""
        position = 0
        while position < len(text):
            if self._escaped:
                self._escaped = False
                position += 1
                continue
            match = (_INSIDE[self._quote] if self._quote else self._outside).search(text, position)
            if match is None:
                return None
            position = match.end()
            self._meet(match[0])
            if self._depth == 0:
                return position
        return None

    def _meet(self, sign: str) -> None:
        if sign == "\\":
            self._escaped = True
        elif sign == self._quote:
            self._quote = ""
        elif sign in "[({":
            self._depth += 1
        elif sign in "])}":
            self._depth -= 1
        else:
            self._quote = sign
