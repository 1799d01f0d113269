"""CompiledGrammar, and Matcher: where one output stands in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_MAX_PROBLEM_CHARACTERS = 300
_EXCERPT = re.compile(r"\n *\d+ \|")  # of the source, which is partly ours


class CompiledGrammar:
    """The beginning of every output. What outputs learn of the grammar on their way is shared by all.

    `is_spent`: one has failed because they learnt as much as they may, so that another would fail too.
    """

    def __init__(self, automaton: LLMatcher) -> None:
        self.is_spent = False
        self._automaton = automaton

    def matcher(self) -> Matcher:
        """A new output; takes microseconds."""
        return Matcher(self, self._automaton.deep_copy())


class Matcher:
    """The state of one output. It advances only by tokens that the sequence keeps, so no preemption touches it."""

    __slots__ = ("_automaton", "_grammar")

    def __init__(self, grammar: CompiledGrammar, automaton: LLMatcher) -> None:
        self._grammar = grammar
        self._automaton = automaton

    @property
    def failure(self) -> str | None:
        """Why the grammar can't be followed any further, the work for one step being bounded; None while it can."""
        if not self._automaton.is_error():
            return None
        self._grammar.is_spent = True
        return f"the grammar can't be followed any further: {problem_of(self._automaton)}"

    @property
    def is_complete(self) -> bool:
        """Whether the output fits the grammar as it is and nothing can follow."""
        return self._automaton.is_stopped() and not self._automaton.is_error()

    def advance(self, token_id: int) -> None:
        """Take in a token of the output, other than its end."""
        self._automaton.consume_token(token_id)

    def allowed_token_ids(self) -> list[int]:
        """What may come next, in order; ends of sequence only where the output may end here."""
        bits = int.from_bytes(self._automaton.compute_bitmask(), "little")
        return [token_id for token_id in range(bits.bit_length()) if bits >> token_id & 1]

    @staticmethod
    def fill(
        executor: LLExecutor, matchers: Mapping[int, Matcher], address: int, *, num_rows: int, row_bytes: int
    ) -> None:
        """Write masks into their rows of `[num_rows, row_bytes]` at an address; Python runs on in other threads.

        Bit i of byte i // 8 stands for token i. The mask of a matcher that has failed means nothing.
        """
        places = [(matcher._automaton, row) for row, matcher in matchers.items()]
        executor.unsafe_compute_mask_ptr(places, address, row_bytes, num_rows)


def problem_of(automaton: LLMatcher) -> str:
    """What the library has against a grammar, in a line of bounded length."""
    problem = _EXCERPT.split(automaton.get_error(), maxsplit=1)[0].replace("<non-verbose/>", "")
    text = " ".join(problem.split()).rstrip(".")
    if "oneOf constraints are not supported" in text:
        return "'oneOf' needs alternatives that can't both fit, told apart by a required 'const', say; or use 'anyOf'"
    return text[:_MAX_PROBLEM_CHARACTERS]
