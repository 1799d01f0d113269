"""CallSyntax: how calls are laid out where a grammar holds a model to them, as rules of that grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from core_engine import Grammar, rule_of
from gateway.protocol.tools import FunctionTool
from gateway.tools.choice import ToolUse, schema_of

MAX_CALLS = 16  # in one answer; else a model may never come to an end

Spell = Callable[[str], str]  # a text as a grammar has it, which names control tokens by their ids


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """Calls in a row: `opening`, objects with a name and `arguments`, `separator` between them, `closing`.

    Without a separator each call is a row of its own. `mark` stands before each row, anywhere in a text; with `bare`
    it may be missing at the beginning of an answer, and where there is no mark calls stand only there.
    """

    mark: str = ""
    bare: bool = False
    opening: tuple[str, ...] = ()
    closing: tuple[str, ...] = ()
    separator: str = ""
    arguments: str = "arguments"

    def max_rows(self, use: ToolUse) -> int:
        """Rows in one answer."""
        return 1 if use.one_call or self.separator else MAX_CALLS

    def rules(self, use: ToolUse, spell: Spell, arguments_of: Callable[[FunctionTool], Grammar]) -> Iterator[str]:
        """The rule `row`, without its mark, and those that it needs."""
        more = f" ({quoted(self.separator)} call){{0,{MAX_CALLS - 1}}}" if self.separator and not use.one_call else ""
        yield " ".join(["row:", *map(spell, self.opening), f"call{more}", *map(spell, self.closing)])
        yield "call: " + " | ".join(f"call{number}" for number in range(len(use.tools)))
        for number, tool in enumerate(use.tools):
            # In the lexemes of JSON, so that other JSON may stand in its place: one that is longer would win over them.
            begin = ["{", '"name"', ": ", f'"{tool.name}"', ", ", f'"{self.arguments}"', ": "]
            yield " ".join([f"call{number}:", *map(quoted, begin), f'arguments{number} "}}"'])
            # Each tool's schema stays a document of its own, so that its references hold.
            yield f"arguments{number}: {rule_of(arguments_of(tool))}"


JSON_LIST = CallSyntax(bare=True, opening=("[",), closing=("]",), separator=", ")


def checked(tool: FunctionTool) -> Grammar:
    """Arguments that fit the tool's schema."""
    return Grammar("json_schema", msgspec.json.encode(schema_of(tool)).decode())


def checked_if_strict(tool: FunctionTool) -> Grammar:
    """The same for a strict tool, else any object."""
    return checked(tool) if tool.strict else Grammar("json_object")


def quoted(text: str) -> str:
    """A text as a grammar has it."""
    return msgspec.json.encode(text).decode()
