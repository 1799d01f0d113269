"""Structured output: what a request wants its answers to be, and the refusal of what can't be guaranteed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from core_engine import Grammar, InvalidRequest, checked
from gateway.errors import invalid
from gateway.protocol.fields import GenerationFields, ResponseFormat, StructuredOutputs

MAX_COPIED_CHARACTERS = 8 * 1024 * 1024

_KINDS = ("json", "regex", "choice", "grammar")


def output_grammar(fields: GenerationFields) -> Grammar | None:
    """The grammar of each answer; None where any text will do. Raises a 400 for a contradiction."""
    by_format = _of_format(fields.response_format) if fields.response_format is not None else None
    if fields.structured_outputs is None:
        return by_format
    if by_format is not None:
        raise invalid(
            "'structured_outputs' and 'response_format' both say what the answer must be: give one of them.",
            param="structured_outputs",
        )
    return _of_structured_outputs(fields.structured_outputs)


def check_copies(grammar: Grammar | None, num_prompts: int, field: str) -> None:
    """Raise a 400 where a grammar that goes to the engine with each prompt would come to too much."""
    if grammar is not None and len(grammar.text) * num_prompts > MAX_COPIED_CHARACTERS:
        raise invalid(
            f"'{field}' has {len(grammar.text)} characters for each of {num_prompts} prompts; together at most "
            f"{MAX_COPIED_CHARACTERS} are served.",
            param=field,
        )


def response_format(nested: dict[str, Any], field: str) -> ResponseFormat:
    """A format as chat has it, out of another endpoint's `field`; raises a 400 for one that is none."""
    try:
        return checked(nested, ResponseFormat)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at ")[0]
        raise invalid(f"Invalid value for '{field}': {problem[:1].lower()}{problem[1:]}.", param=field) from None


def grammar_field(fields: GenerationFields) -> str:
    """The field by which a request asks for a grammar; without the two that are for it these are its tools."""
    if fields.structured_outputs is not None:
        return "structured_outputs"
    if fields.response_format is not None and fields.response_format.type != "text":
        return "response_format"
    return "tools"


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Have the refusal of a grammar name the field that asked for it."""
    try:
        yield
    except InvalidRequest as error:
        if error.code not in {"invalid_grammar", "grammars_unsupported"}:
            raise
        raise invalid(f"'{field}' can't be served. {error}", param=field, code=error.code) from error


def _of_format(wanted: ResponseFormat) -> Grammar | None:
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Grammar("json_object")
    if wanted.json_schema is None:
        raise invalid(
            "'response_format' of the type 'json_schema' needs the field 'json_schema'.",
            param="response_format.json_schema",
            code="missing_required_parameter",
        )
    return Grammar("json_schema", _json(wanted.json_schema.schema))


def _of_structured_outputs(wanted: StructuredOutputs) -> Grammar:
    given = [kind for kind in _KINDS if getattr(wanted, kind) is not None]
    if len(given) != 1:
        found = " and ".join(f"'{kind}'" for kind in given) or "none of them"
        message = f"'structured_outputs' needs exactly one of {', '.join(_KINDS)}, and has {found}."
        raise invalid(message, param="structured_outputs")
    if wanted.json is not None:
        return Grammar("json_schema", wanted.json if isinstance(wanted.json, str) else _json(wanted.json))
    if wanted.regex is not None:
        return Grammar("regex", wanted.regex)
    if wanted.choice is not None:
        return Grammar("choice", _json(wanted.choice))
    assert wanted.grammar is not None
    return Grammar("lark", wanted.grammar)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
