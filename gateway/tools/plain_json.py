"""`{"name": ..., "arguments": {...}}`, or a list of these, as all of an answer: models without marks of their own."""

from __future__ import annotations

from gateway.tools.json_call import json_calls
from gateway.tools.source import Source, Steps


def plain_json(source: Source) -> Steps[None]:
    """Calls at the beginning, then text."""
    yield from json_calls(source)
    yield from source.rest_as_text()
