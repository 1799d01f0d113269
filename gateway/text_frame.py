"""TextFrame: a frame of a stream of which only the text changes."""

from __future__ import annotations

import msgspec

PLACEHOLDER = "\0"

_encode = msgspec.json.Encoder().encode
_ENCODED_PLACEHOLDER = _encode(PLACEHOLDER)


class TextFrame:
    """Made from a frame whose last string of the kind is PLACEHOLDER; all but the text is encoded only once."""

    def __init__(self, frame: bytes) -> None:
        self._before, found, self._after = frame.rpartition(_ENCODED_PLACEHOLDER)
        assert found

    def fill(self, text: str) -> bytes:
        """The frame with this text."""
        return self._before + _encode(text) + self._after
