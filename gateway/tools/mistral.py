"""`[TOOL_CALLS]` before a list of JSON objects, or before a name and its arguments: Mistral, older and newer."""

from __future__ import annotations

from gateway.tools.json_call import call_with_object, json_calls
from gateway.tools.source import Source, Steps
from gateway.tools.syntax import CallSyntax

START, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
SYNTAX = CallSyntax(mark=START, opening=("[",), closing=("]",), separator=", ")


def mistral(source: Source) -> Steps[None]:
    """Text, then calls; the newer form repeats the mark before each of them."""
    while (yield from source.text_until(START)):
        if (yield from source.blank()) in {"[", "{"}:
            yield from json_calls(source)
        else:
            yield from _named_call(source)


def _named_call(source: Source) -> Steps[None]:
    """`name{...}`, `name[ARGS]{...}` or `name[CALL_ID]id[ARGS]{...}`."""
    name = yield from source.word(source.names)
    if name is None:
        return
    if (yield from source.take(ID)):
        while (yield from source.peek()).isalnum():
            source.advance()
    yield from source.take(ARGUMENTS)
    if (yield from source.blank()) == "{":
        yield from call_with_object(source, name)
