"""`{"name": ..., "parameters": {...}}` as all of an answer, or behind `<|python_tag|>`: Llama 3.1 and later."""

from __future__ import annotations

from gateway.tools.json_call import json_calls
from gateway.tools.source import Source, Steps
from gateway.tools.syntax import CallSyntax

TAG = "<|python_tag|>"
SYNTAX = CallSyntax(mark=TAG, bare=True, separator="; ", arguments="parameters")


def llama(source: Source) -> Steps[None]:
    """Without the tag calls stand at the beginning only."""
    yield from json_calls(source)
    while (yield from source.text_until(TAG)):
        yield from json_calls(source)
