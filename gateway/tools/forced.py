"""Calls that a request demands: a grammar holds the model to them, and the answer is nothing else."""

from __future__ import annotations

from core_engine import Grammar
from gateway.tools.choice import ToolUse
from gateway.tools.json_call import call_with_object
from gateway.tools.source import Source, Steps
from gateway.tools.syntax import JSON_LIST, checked, quoted


def forced_grammar(use: ToolUse) -> Grammar:
    """The grammar of all that may be written: the arguments of a named tool, else a list of calls."""
    if use.mode == "named":
        return checked(use.tools[0])
    return Grammar("lark", "\n".join(["start: row", *JSON_LIST.rules(use, quoted, checked)]))


def named(source: Source) -> Steps[None]:
    """Read the arguments of the one tool that there is."""
    (name,) = source.names
    if (yield from source.blank()) == "{":
        yield from call_with_object(source, name)
        yield from source.blank()
        source.drop()
    yield from source.rest_as_text()
