"""From a Grammar to the source that llguidance compiles."""

from __future__ import annotations

import msgspec

from core_engine.errors import InvalidRequest
from core_engine.grammars.grammar import Grammar

MAX_GRAMMAR_BYTES = 256 * 1024

# Free text of a client never sets the library's options: those at the root of a schema are replaced by ours.
_SCHEMA_OPTIONS = {
    # White space as most JSON has it: left to choose, small models go on with it for ever.
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
}
# Where only one text can follow, any tokens that spell it may: the model's own preference decides.
_OPTIONS = '\n%llguidance {"no_forcing": true}'


def source_of(grammar: Grammar) -> str:
    """A grammar in llguidance's Lark; raises InvalidRequest where `text` is no JSON, too long, or no choice at all."""
    _check_size(grammar)
    return (grammar.text if grammar.kind == "lark" else f"start: {rule_of(grammar)}") + _OPTIONS


def rule_of(grammar: Grammar) -> str:
    """The right side of a rule, for a grammar that is made of others. Raises InvalidRequest as `source_of` does.

    One of the kind `lark` has rules and names of its own, and is no part of another.
    """
    _check_size(grammar)
    match grammar.kind:
        case "json_object":
            return _of_schema({"type": "object"})
        case "json_schema":
            return _of_schema(_decode(grammar.text))
        case "regex":
            return _of_regex(grammar.text)
        case "choice":
            choices = _decode(grammar.text)
            if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
                raise invalid_grammar("a choice needs a list of at least one string")
            return _of_regex("|".join(map(_literally, choices)))
        case "lark":
            raise invalid_grammar("a grammar in Lark can't be a part of another")


def invalid_grammar(problem: str) -> InvalidRequest:
    """The refusal of a grammar."""
    return InvalidRequest(f"The grammar can't be followed: {problem}.", "invalid_grammar")


def _check_size(grammar: Grammar) -> None:
    size = len(grammar.text.encode("utf-8", "surrogatepass"))
    if size > MAX_GRAMMAR_BYTES:
        raise invalid_grammar(f"it has {size} bytes; at most {MAX_GRAMMAR_BYTES} are compiled")


def _of_schema(schema: object) -> str:
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise invalid_grammar("a JSON Schema is an object, and nothing fits the schema `false`")
    text = msgspec.json.encode({**schema, "x-guidance": _SCHEMA_OPTIONS}).decode()
    return f"%json {text}"


def _of_regex(regex: str) -> str:
    from llguidance import regex_to_lark

    # Two slashes would begin a comment.
    return f"/{regex_to_lark(regex, '') or '()'}/"


def _literally(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def _decode(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise invalid_grammar(f"it is no valid JSON: {error}") from None
