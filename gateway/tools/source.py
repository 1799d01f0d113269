"""Source: the text of an answer as it comes, for parsers that are generators and yield where they need more of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import TypeVar

from gateway.deltas import AnswerDelta, ArgumentsDelta, CallStart, ReasoningDelta, TextDelta
from gateway.tools.nesting import Nesting

T = TypeVar("T")
Steps = Generator[None, None, T]


class Source:
    """What a parser reads from and answers into.

    Text that was read stays held until it is settled: shown as what it turned out to be, or dropped as the wrapping
    of a call. A parser that finds something else than it looked for just returns; what it read is then shown as text
    by whoever goes on, so nothing is lost and nothing is read twice.

    `names` are the tools that may be called. With `one_call` the answer ends with its first call. `new_id` makes the
    ids of calls.
    """

    def __init__(self, names: Collection[str], *, one_call: bool, new_id: Callable[[], str]) -> None:
        self.names = frozenset(names)
        self.deltas: list[AnswerDelta] = []
        self.complete = False  # no more text comes
        self.satisfied = False  # the answer is as long as it may be
        self.num_calls = 0
        self._one_call = one_call
        self._new_id = new_id
        self._text = ""  # not settled
        self._position = 0  # in it, of what comes next

    @property
    def num_held(self) -> int:
        """Characters that aren't settled."""
        return len(self._text)

    @property
    def following(self) -> str:
        """What is there and wasn't read."""
        return self._text[self._position :]

    def feed(self, text: str) -> None:
        """Add text that has come."""
        self._text += text

    def peek(self) -> Steps[str]:
        """The next character; none at the end."""
        while self._position == len(self._text) and not self.complete:
            yield
        return self._text[self._position : self._position + 1]

    def advance(self, num_characters: int = 1) -> None:
        """Read so many characters."""
        self._position += num_characters

    def blank(self) -> Steps[str]:
        """Read white space; the character after it."""
        while (character := (yield from self.peek())) and character.isspace():
            self._position += 1
        return character

    def take(self, literal: str) -> Steps[bool]:
        """Read `literal`, or nothing where something else follows."""
        while not self.complete and len(self.following) < len(literal) and literal.startswith(self.following):
            yield
        found = self._text.startswith(literal, self._position)
        if found:
            self._position += len(literal)
        return found

    def close(self, literal: str) -> Steps[None]:
        """Drop the wrapping that ends with `literal`, which may be missing or be cut by the end of the answer."""
        yield from self.blank()
        if not (yield from self.take(literal)) and self.complete and literal.startswith(self.following):
            self._position = len(self._text)
        self.drop()

    def word(self, words: Collection[str]) -> Steps[str | None]:
        """Read one of these words, made of letters, digits and `_.-`; None as soon as it can't be one of them."""
        read = ""
        while (character := (yield from self.peek())) and (character.isalnum() or character in "_.-"):
            read += character
            self._position += 1
            if not any(word.startswith(read) for word in words):
                return None
        return read if read in words else None

    def nested(self, quotes: str, on_read: Callable[[str], None] | None = None, *, depth: int = 0) -> Steps[str | None]:
        """Read from a bracket, or from within `depth` of them, to the end; None where the answer ends before.

        With `on_read` what was read is settled and handed over as it comes, and the text is not returned whole.
        """
        nesting, start = Nesting(quotes, depth), self._position
        while True:
            chunk = self.following
            end = nesting.find_end(chunk)
            self._position += len(chunk) if end is None else end
            if on_read is not None:
                on_read(self._text[start : self._position])
                self.drop()
                start = 0
            if end is not None:
                return self._text[start : self._position]
            if self.complete:
                return None
            yield

    def text_until(self, marker: str) -> Steps[bool]:
        """Show text up to `marker`, which is read with the white space before it; false where the answer ends."""
        return (yield from self._until(marker, TextDelta))

    def reasoning_until(self, marker: str) -> Steps[bool]:
        """The same for reasoning."""
        return (yield from self._until(marker, ReasoningDelta))

    def rest_as_text(self) -> Steps[None]:
        """Show everything that follows."""
        while not self.complete:
            self._show(self._end_of_text(), TextDelta)
            yield
        self._finish(TextDelta)

    def _until(self, marker: str, kind: type[TextDelta | ReasoningDelta]) -> Steps[bool]:
        while True:
            found = self._text.find(marker, self._position)
            if found < 0 and self.complete:
                self._finish(kind)
                return False
            end = found if found >= 0 else len(self._text) - _num_begun(self._text[self._position :], marker)
            blank = end - len(self._text[:end].rstrip())
            self._show(end - blank, kind)
            if found >= 0:
                self._position = blank + len(marker)
                return True
            yield

    def _finish(self, kind: type[TextDelta | ReasoningDelta]) -> None:
        self._show(self._end_of_text(), kind)
        self._position = len(self._text)
        self.drop()

    def _end_of_text(self) -> int:
        """Where what is held ends; white space after calls is worth nothing if nothing follows."""
        return len(self._text.rstrip()) if self.num_calls else len(self._text)

    def _show(self, num_characters: int, kind: type[TextDelta | ReasoningDelta]) -> None:
        if num_characters:
            self.deltas.append(kind(self._text[:num_characters]))
            self._text = self._text[num_characters:]
            self._position = 0

    def drop(self) -> None:
        """Let go of what was read: it was wrapping."""
        self._text = self._text[self._position :]
        self._position = 0

    def start_call(self, name: str) -> None:
        """A call has been found; what was read is its wrapping."""
        self.drop()
        self.deltas.append(CallStart(self.num_calls, self._new_id(), name))
        self.num_calls += 1

    def argue(self, text: str) -> None:
        """More of the arguments of the call that was started last."""
        self.deltas.append(ArgumentsDelta(self.num_calls - 1, text))

    def end_call(self) -> Steps[None]:
        """The call is complete; never goes on where the answer may have no other."""
        self.drop()
        self.satisfied = self._one_call
        while self.satisfied:
            yield


def _num_begun(text: str, marker: str) -> int:
    """Characters at the end of the text by which the marker may have begun."""
    return next((size for size in range(min(len(marker) - 1, len(text)), 0, -1) if text.endswith(marker[:size])), 0)
