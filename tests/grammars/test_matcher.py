"""What grammars allow, token by token, and which are refused when they are compiled."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer

from core_engine.errors import InvalidRequest
from core_engine.grammars.compiler import compile_grammar
from core_engine.grammars.grammar import Grammar
from core_engine.grammars.matcher import Matcher
from core_engine.grammars.source import MAX_GRAMMAR_BYTES
from core_engine.text import TextModel
from tests.support.schemas import random_schemas

Compile = Callable[[Grammar], Matcher]


@pytest.fixture
def begin(tokenizer: LLTokenizer) -> Compile:
    return lambda grammar: compile_grammar(tokenizer, grammar).matcher()


def schema(value: object) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


def walk(matcher: Matcher, text_model: TextModel, draw: random.Random, most: int = 600) -> str | None:
    """What comes of drawing any allowed token; None where it did not end."""
    said = b""
    for _ in range(most):
        allowed = matcher.allowed_token_ids()
        assert not set(allowed) & text_model.special_token_ids - set(text_model.eos_token_ids)
        assert max(allowed) < text_model.vocab_size
        token_id = draw.choice(allowed)
        matcher.advance(token_id)
        assert matcher.failure is None
        if token_id not in text_model.eos_token_ids:
            said += text_model.token_bytes(token_id)
        if matcher.is_complete:
            return said.decode()
    return None


def follows(matcher: Matcher, text_model: TextModel, text: str) -> bool:
    """Whether the text may be said, byte by byte, and be all."""
    by_bytes = {text_model.token_bytes(i): i for i in range(text_model.vocab_size) if i not in special(text_model)}
    for byte in text.encode():
        token_id = by_bytes[bytes([byte])]
        if token_id not in matcher.allowed_token_ids():
            return False
        matcher.advance(token_id)
    return matcher.is_complete or bool(set(text_model.eos_token_ids) & set(matcher.allowed_token_ids()))


def special(text_model: TextModel) -> frozenset[int]:
    return text_model.special_token_ids


def test_random_schemas_hold_whatever_is_drawn(begin: Compile, text_model: TextModel) -> None:
    draw = random.Random(1)
    ended = 0
    for wanted in random_schemas(60, seed=2):
        said = walk(begin(schema(wanted)), text_model, draw)
        if said is not None:
            ended += 1
            jsonschema.validate(json.loads(said), wanted)
    assert ended > 50


@given(choices=st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=4), data=st.data())
def test_a_choice_is_said_to_the_letter(
    tokenizers: tuple[LLTokenizer, TextModel], choices: list[str], data: st.DataObject
) -> None:
    tokenizer, text_model = tokenizers
    start = compile_grammar(tokenizer, Grammar("choice", json.dumps(choices)))
    assert walk(start.matcher(), text_model, random.Random(data.draw(st.integers()))) in choices
    assert all(follows(start.matcher(), text_model, choice) for choice in choices)


@pytest.fixture(scope="session")
def tokenizers(tokenizer: LLTokenizer, text_model: TextModel) -> tuple[LLTokenizer, TextModel]:
    return tokenizer, text_model


@pytest.mark.parametrize("regex", ["[ab]{3}", "a/b|c//d", "^x$", "(yes|no)\\.", "\\d{2}:\\d{2}", "", "ä+?b"])
def test_a_regex_matches_the_whole_output(begin: Compile, text_model: TextModel, regex: str) -> None:
    draw = random.Random(3)
    for _ in range(5):
        said = walk(begin(Grammar("regex", regex)), text_model, draw)
        assert said is None or re.fullmatch(regex, said)


def test_a_json_object_is_an_object(begin: Compile, text_model: TextModel) -> None:
    for text in ("{}", '{"a": [1, {"b": null}]}', '{"ä": "\\n"}'):
        assert follows(begin(Grammar("json_object")), text_model, text)
    for text in ("[]", "1", "{", '{"a": }', "{} ", "null"):
        assert not follows(begin(Grammar("json_object")), text_model, text)


def test_an_output_ends_only_where_it_fits(begin: Compile, text_model: TextModel) -> None:
    ends = set(text_model.eos_token_ids)
    matcher = begin(Grammar("regex", "a+"))
    assert not ends & set(matcher.allowed_token_ids())
    matcher.advance(next(i for i in matcher.allowed_token_ids() if text_model.token_bytes(i) == b"a"))
    assert ends < set(matcher.allowed_token_ids())
    assert not matcher.is_complete
    matcher.advance(text_model.eos_token_ids[0])
    assert matcher.is_complete


def test_a_lark_grammar_may_hold_a_schema_and_name_a_special_token(begin: Compile, text_model: TextModel) -> None:
    special = next(i for i in sorted(text_model.special_token_ids) if i not in text_model.eos_token_ids)
    matcher = begin(Grammar("lark", f'start: <[{special}]> "call " arguments\narguments: %json {{"type": "integer"}}'))
    assert matcher.allowed_token_ids() == [special]
    matcher.advance(special)
    assert follows(matcher, text_model, "call 12")


def test_clients_do_not_set_the_librarys_options(begin: Compile) -> None:
    with pytest.raises(InvalidRequest, match="uniqueItems"):
        begin(schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}))


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        (schema({"type": "nope"}), "nope"),
        (schema({"type": "string", "pattern": "("}), "unclosed group"),
        (schema({"type": "string", "pattern": "(?=a)b"}), "look"),
        (schema({"type": "integer", "minimum": 2, "maximum": 1}), "minimum"),
        (schema({"not": {"type": "string"}}), "not"),
        (schema({"$ref": "#"}), "no text fits"),
        (schema({"$ref": "https://example.com/schema"}), "example.com"),
        (schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "oneOf"),
        (schema(False), "false"),
        (schema([]), "object"),
        (Grammar("json_schema", "{"), "JSON"),
        (Grammar("regex", "(a)\\1"), "backreference"),
        (Grammar("regex", "a" * (MAX_GRAMMAR_BYTES + 1)), str(MAX_GRAMMAR_BYTES)),
        (Grammar("choice", "[]"), "choice"),
        (Grammar("lark", 'begin: "x"'), "start"),
        (Grammar("lark", "start: x"), "x"),
        (Grammar("lark", "("), "1(1)"),
    ],
)  # fmt: skip
def test_what_can_not_be_followed_is_refused(begin: Compile, grammar: Grammar, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(problem)) as refusal:
        begin(grammar)
    assert refusal.value.code == "invalid_grammar"
    assert len(str(refusal.value)) < 500
