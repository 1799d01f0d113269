"""Calls that a request demands: a grammar holds the model to them, and the answer is nothing else."""

from __future__ import annotations

import msgspec

from core_engine import Grammar
from gateway.protocol.tools import FunctionTool
from gateway.tools.choice import ToolUse, schema_of
from gateway.tools.json_call import call_with_object
from gateway.tools.source import Source, Steps

MAX_CALLS = 16  # in one answer; else a model may never come to an end
# The library's options at the root of a schema are ours, not the client's. A model isn't left to choose white space:
# small ones would go on with it for ever.
_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
}


def forced_grammar(use: ToolUse) -> Grammar:
    """The grammar of all that may be written: the arguments of a named tool, else a list of calls.

    Each tool's schema stays a document of its own, so that its references hold.
    """
    if use.mode == "named":
        return Grammar("json_schema", _json(schema_of(use.tools[0])))
    more = "" if use.one_call else f' (", " call){{0,{MAX_CALLS - 1}}}'
    rules = [f'start: "[" call{more} "]"', "call: " + " | ".join(f"call{number}" for number in range(len(use.tools)))]
    rules += [_call_rule(number, tool) for number, tool in enumerate(use.tools)]
    return Grammar("lark", "\n".join(rules))


def named(source: Source) -> Steps[None]:
    """Read the arguments of the one tool that there is."""
    (name,) = source.names
    if (yield from source.blank()) == "{":
        yield from call_with_object(source, name)
        yield from source.blank()
        source.drop()
    yield from source.rest_as_text()


def _call_rule(number: int, tool: FunctionTool) -> str:
    schema = {**schema_of(tool), "x-guidance": _OPTIONS}
    start = _json(f'{{"name": "{tool.name}", "arguments": ')
    return f'call{number}: {start} arguments{number} "}}"\narguments{number}: %json {_json(schema)}'


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
