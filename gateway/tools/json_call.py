"""Calls of tools as JSON objects: `{"name": ..., "arguments": {...}}`, as most models write them in some wrapping."""

from __future__ import annotations

import msgspec

from gateway.tools.source import Source, Steps

_ARGUMENTS = ("arguments", "parameters")
_ASIDES = ("type", "id")
_KEYS = ("name", *_ARGUMENTS, *_ASIDES)
_MAX_ASIDE_CHARACTERS = 64


def json_calls(source: Source) -> Steps[bool]:
    """Read a call, several one after the other (`;` or `,` may stand between), or a list; whether there was any."""
    in_list = (yield from source.blank()) == "["
    source.advance(in_list)
    any_made = False
    while (yield from json_call(source)):
        any_made = True
        separator = yield from source.blank()
        if separator and separator in ",;":
            source.advance()
        elif separator != "{":
            break
    if any_made and in_list:
        yield from source.close("]")
    return any_made


def json_call(source: Source) -> Steps[bool]:
    """Read one call; false, with what was read still held, where there is something else.

    Keys may come in any order; "parameters" is another word for "arguments", which may also be JSON in a string or
    missing. They are passed on as the model writes them, from the moment the name is known.
    """
    if (yield from source.blank()) != "{":
        return False
    source.advance()
    name = arguments = None
    while (key := (yield from _quoted(source, _KEYS))) is not None and (yield from _colon(source)):
        if key == "name":
            name = yield from _quoted(source, source.names)
            good = name is not None
        elif key in _ASIDES:
            good = yield from _aside(source)
        elif name is not None and (yield from source.blank()) == "{":
            yield from call_with_object(source, name)
            yield from _close(source)
            return True
        else:
            arguments = yield from _whole_arguments(source)
            good = arguments is not None
        separator = yield from source.blank()
        if not good or not separator or separator not in ",}":
            return False
        source.advance()
        if separator == "}" and name is not None:
            source.start_call(name)
            source.argue(arguments or "{}")
            yield from source.end_call()
            return True
    return False


def call_with_object(source: Source, name: str) -> Steps[None]:
    """Call a tool with the object that comes next."""
    source.start_call(name)
    yield from source.nested('"', source.argue)
    yield from source.end_call()


def _close(source: Source) -> Steps[None]:
    """Drop the end of an object whose arguments are complete, with whatever else it holds."""
    if (yield from source.blank()) in {",", "}"}:
        yield from source.nested('"', depth=1)
    source.drop()


def _colon(source: Source) -> Steps[bool]:
    found = (yield from source.blank()) == ":"
    source.advance(found)
    return found


def _quoted(source: Source, words: tuple[str, ...] | frozenset[str]) -> Steps[str | None]:
    """Read one of these words in quotes; None as soon as it can't be one of them."""
    if (yield from source.blank()) != '"':
        return None
    source.advance()
    word = yield from source.word(words)
    return word if (yield from source.take('"')) else None


def _aside(source: Source) -> Steps[bool]:
    """Read a short string that says nothing of interest."""
    if (yield from source.blank()) != '"':
        return False
    source.advance()
    for _ in range(_MAX_ASIDE_CHARACTERS):
        character = yield from source.peek()
        source.advance(bool(character))
        if character in {'"', "\\", ""}:
            return character == '"'
    return False


def _whole_arguments(source: Source) -> Steps[str | None]:
    """Read arguments that can't be passed on yet: an object before its name, JSON in a string, or null."""
    first = yield from source.blank()
    if first == "{":
        return (yield from source.nested('"'))
    if first == "n":
        return "{}" if (yield from source.take("null")) else None
    if first != '"':
        return None
    return _object_in((yield from _string(source)))


def _string(source: Source) -> Steps[str]:
    """Read a JSON string as it is written."""
    text, escaped = "", False
    while True:
        character = yield from source.peek()
        source.advance(bool(character))
        text += character
        if not character or (character == '"' and not escaped and len(text) > 1):
            return text
        escaped = character == "\\" and not escaped


def _object_in(string: str) -> str | None:
    """The JSON that a JSON string holds, if it is an object."""
    try:
        text = msgspec.json.decode(string, type=str)
        msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return None
    return text
