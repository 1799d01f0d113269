"""ControlText: keeps text in a client's strings from being read as a tokenizer's control tokens.

A chat template mixes control tokens (`<|im_start|>`) with strings of a client, and once both are one
text, a tokenizer can't tell them apart: whoever writes a control token into a message forges a role.
So client strings are marked before the template sees them, with noncharacters that Unicode keeps
free for such use, and the rendered text is cut at the marks: no control token survives a cut.

A control token that the template itself looks for in a message (`content.split("</think>")`) must
stay whole for that; it is wrapped in marks, with the white space around it, which templates like to
strip next, and taken apart after rendering.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from core_engine.errors import InvalidRequest

_OPEN, _CLOSE, _CUT, _END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_MARK = re.compile(f"[{_OPEN}{_CLOSE}{_CUT}]")
_BLANK = re.compile(r"\s*")
_NEVER = "(?!)"
_KEYWORDS = frozenset({"role", "type"})  # keys whose values templates compare, never print beside client text

FINAL_MESSAGE_END = _END
MAX_CUTS = 20_000  # each costs a call of the tokenizer


class ControlText:
    """Marks client strings and takes rendered text apart again.

    `tokens` are the texts of the control tokens, `searched` those of them that the template looks
    for, `normalize` what the tokenizer does to a text before it looks for them (None: nothing).
    Letter case is disregarded, because templates can change it.
    """

    def __init__(
        self, tokens: Collection[str], searched: Collection[str], normalize: Callable[[str], str] | None = None
    ) -> None:
        self._searched = frozenset(searched)
        self._normalize = normalize
        self._token = re.compile(_any_of(tokens), re.IGNORECASE)
        self._wrapped = re.compile(rf"{_OPEN}(\s*{_any_of(self._searched)}\s*){_CLOSE}|{_MARK.pattern}")
        folded = {token.lower() for token in tokens}
        self._heads = tuple(sorted({token[:size] for token in folded for size in range(1, len(token))}))
        self._tails = tuple(sorted({token[size:] for token in folded for size in range(1, len(token))}))
        self._longest = max(map(len, tokens), default=0)

    def mark(self, value: Any, key: str | None = None) -> Any:
        """Copy JSON data with every string marked where that is needed; `key` is the one it stands under."""
        if isinstance(value, str):
            return self._mark_string(value, edges=key not in _KEYWORDS)
        if isinstance(value, dict):
            return {self._mark_string(name, edges=False): self.mark(item, name) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark(item, key) for item in value]
        return value

    def pieces(self, rendered: str) -> list[str]:
        """Cut rendered text at its marks; a single piece is a text in which there was nothing to guard against."""
        if not _MARK.search(rendered):
            return [rendered]
        pieces = [piece for piece in self._cut(rendered) if piece]
        if len(pieces) > MAX_CUTS:
            raise _invalid(f"the messages spell more than {MAX_CUTS} control tokens")
        return pieces

    def _cut(self, rendered: str) -> Iterator[str]:
        position = 0
        for match in self._wrapped.finditer(rendered):
            yield rendered[position : match.start()]
            if match[1]:
                yield from _MARK.split(self._split_tokens(match[1], keep=frozenset()))
            position = match.end()
        yield rendered[position:]

    def _mark_string(self, text: str, *, edges: bool) -> str:
        text = re.sub(f"[{_OPEN}-{_END}]", "\ufffd", text)
        if self._normalize is not None:
            normal = self._normalize(text)
            if len(self._token.findall(normal)) != len(self._token.findall(text)):
                text = normal
        marked = self._split_tokens(text, self._searched)
        return self._mark_edges(marked) if edges else marked

    def _split_tokens(self, text: str, keep: frozenset[str]) -> str:
        """Cut every control token after its first character, or wrap it if it is one to keep."""
        parts, position = [], 0
        while match := self._token.search(text, position):
            start, end = match.span()
            if end - start == 1:
                raise _invalid(f"{match[0]!r} in a message is a control token, and this model can't write it otherwise")
            if match[0] in keep:
                before = text[position:start].rstrip()
                blank_end = _BLANK.match(text, end).end()  # type: ignore[union-attr]
                parts += [before, _OPEN, text[position + len(before) : blank_end], _CLOSE]
                position = blank_end
            else:
                # Go on right behind the cut: another token may begin inside this one.
                parts += [text[position : start + 1], _CUT]
                position = start + 1
            if len(parts) > 2 * MAX_CUTS:
                raise _invalid(f"a message spells more than {MAX_CUTS} control tokens")
        return "".join(parts) + text[position:]

    def _mark_edges(self, text: str) -> str:
        """Cut where a string begins or ends like a part of a control token, lest a neighbour complete it."""
        body = text.strip()
        if body[-self._longest :].lower().endswith(self._heads):
            end = len(text.rstrip())
            text = f"{text[:end]}{_CUT}{text[end:]}"
        if body[: self._longest].lower().startswith(self._tails):
            start = len(text) - len(text.lstrip())
            text = f"{text[:start]}{_CUT}{text[start:]}"
        return text


def strip_marks(text: str) -> str:
    """Return the text without marks, for messages to people."""
    return re.sub(f"[{_OPEN}-{_END}]", "", text)


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, "invalid_messages", "messages")


def _any_of(tokens: Collection[str]) -> str:
    """Regular expression for any of these texts, the longest first."""
    if not tokens:
        return _NEVER
    first = "".join(sorted({re.escape(token[0]) for token in tokens}))
    # The class of first characters makes the search skip quickly over all others.
    return f"(?=[{first}])(?:{'|'.join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))})"
