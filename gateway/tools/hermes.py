"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen and many that learnt from them."""

from __future__ import annotations

from gateway.tools.json_call import json_calls
from gateway.tools.source import Source, Steps
from gateway.tools.syntax import CallSyntax

START, END = "<tool_call>", "</tool_call>"
SYNTAX = CallSyntax(mark=START, opening=("\n",), closing=("\n", END))


def hermes(source: Source) -> Steps[None]:
    """Text with calls in tags. A tag that isn't closed, or a brace too many before it is, harms nothing."""
    while (yield from source.text_until(START)):
        if (yield from json_calls(source)):
            while (yield from source.blank()) == "}":
                source.advance()
            yield from source.close(END)
