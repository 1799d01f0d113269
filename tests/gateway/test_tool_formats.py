"""Formats of tool calls: what models write is found, and nothing is lost of what they write badly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.deltas import AnswerDelta, ArgumentsDelta, CallStart, joined, said
from gateway.tools.formats import FORCED, FORMATS, ToolFormat
from gateway.tools.reading import SteppedReader
from gateway.tools.source import Source

NAMES = ("get_weather", "get", "now")
OSLO = '{"town": "Oslo", "days": [1, {"a": "}\\"]"}]}'


def read(tool_format: ToolFormat, text: str, sizes: list[int] | None = None, *, one_call: bool = False) -> list[Any]:
    """The joined deltas of a text that comes in pieces of these sizes, the rest at once."""
    ids = iter(f"id{number}" for number in range(1000))
    source = Source(NAMES, one_call=one_call, new_id=lambda: next(ids))
    reader = SteppedReader(source, tool_format.read(source))
    deltas: list[AnswerDelta] = []
    position = 0
    for size in [*(sizes or []), len(text)]:
        deltas += reader.push(text[position : position + size])
        position += size
        assert reader.satisfied or reader.num_held <= len(text)
    deltas += reader.end()
    assert reader.satisfied or reader.num_held == 0
    return joined(deltas)


def found(name: str, text: str, **options: Any) -> tuple[str, list[tuple[str, str]]]:
    """Text and calls."""
    whole = said(read(FORMATS[name], text, **options))
    return whole.text, [(call.name, call.arguments) for call in whole.calls]


NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
GET = '<tool_call>\n{"name": "get", "arguments": {"a": 1}}\n</tool_call>'
WEATHER = f'{{"name": "get_weather", "arguments": {OSLO}}}'

GOOD = [
    ("hermes", f"<tool_call>\n{WEATHER}\n</tool_call>", "", [("get_weather", OSLO)]),
    ("hermes", f"Let me see.\n\n{NOW}\n{GET}\n", "Let me see.", [("now", "{}"), ("get", '{"a": 1}')]),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "get"}</tool_call>', "", [("get", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "get", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("get", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "now"}</tool_call> done', " done", [("now", "{}")]),
    ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', "", [("now", "{}")]),
    # A tag that is missing, cut, or comes after a brace too many.
    ("hermes", '<tool_call>{"name": "get", "arguments": {"a": 1}}', "", [("get", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "get", "arguments": {"a": 1}}\n</tool_', "", [("get", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "get", "arguments": {"a": 1}}}\n</tool_call>', "", [("get", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "get", "arguments": {"a": 1}, "why": [1]}</tool_call>', "", [("get", '{"a": 1}')]),
    # The output ends inside the arguments.
    ("hermes", '<tool_call>{"name": "get", "arguments": {"a": ', "", [("get", '{"a": ')]),
    ("llama", f'{{"name": "get_weather", "parameters": {OSLO}}}', "", [("get_weather", OSLO)]),
    ("llama", '<|python_tag|>{"type": "function", "name": "now", "parameters": {}}', "", [("now", "{}")]),
    (
        "llama",
        '{"name": "now", "parameters": {}}; {"name": "get", "parameters": {"a": 1}}',
        "",
        [("now", "{}"), ("get", '{"a": 1}')],
    ),
    ("llama", 'Sure. <|python_tag|>{"name": "now", "parameters": {}}', "Sure.", [("now", "{}")]),
    (
        "mistral",
        '[TOOL_CALLS][{"name": "get", "arguments": {"a": 1}}, {"name": "now", "arguments": {}, "id": "abcdefghi"}]',
        "",
        [("get", '{"a": 1}'), ("now", "{}")],
    ),
    ("mistral", 'Well. [TOOL_CALLS]get{"a": 1}[TOOL_CALLS]now{}', "Well.", [("get", '{"a": 1}'), ("now", "{}")]),
    ("mistral", '[TOOL_CALLS]get[ARGS]{"a": 1}', "", [("get", '{"a": 1}')]),
    ("mistral", '[TOOL_CALLS]get[CALL_ID]a1B2c3D4e[ARGS]{"a": 1}', "", [("get", '{"a": 1}')]),
    (
        "pythonic",
        """[get_weather(town='Os"lo', days=[1, 2.5], rain=True, wind=null, x={"(": ")"}), now()]""",
        "",
        [("get_weather", '{"town":"Os\\"lo","days":[1,2.5],"rain":true,"wind":null,"x":{"(":")"}}'), ("now", "{}")],
    ),
    ("pythonic", "<|python_start|>[now()]<|python_end|>", "", [("now", "{}")]),
    ("json", ' {"name": "get", "arguments": {"a": 1}}\n', "", [("get", '{"a": 1}')]),
    ("json", f'[{WEATHER}, {{"name": "now", "arguments": {{}}}}]', "", [("get_weather", OSLO), ("now", "{}")]),
]  # fmt: skip

# Nothing of these is a call, so that all of it is text.
TEXTS = [
    ("hermes", "No call here, only 1 < 2 and <tool> and <tool_cal"),
    ("hermes", "  white space is kept \n"),
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "get", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "ge'),
    ("hermes", '<tool_call>{"arguments": {"a": '),
    ("hermes", '<tool_call>{"name": get}</tool_call>'),
    ("hermes", '<tool_call>{"name": "get", "arguments": "{broken"}</tool_call>'),
    ("hermes", "<tool_call><tool_call><tool_call>"),
    ("llama", '{"size": "S", "name": "get"}'),
    ("llama", "<|python_tag|>print(1)"),
    ("llama", 'The form is {"name": "get", "parameters": {}}'),
    ("mistral", "[TOOL_CALLS]unknown{}"),
    ("mistral", "[TOOL_CALLS][]"),
    ("mistral", "[TOOL_CALLS]get 5"),
    ("pythonic", "[1, 2, 3]"),
    ("pythonic", "[get(5)]"),
    ("pythonic", "[get(a=b)]"),
    ("pythonic", "[get(a=open('x'))]"),
    ("pythonic", "[get(**{'a': 1})]"),
    ("pythonic", "[get(a=1"),
    ("pythonic", "[get(a=" + "[" * 5000 + "]" * 5000 + ")]"),
    ("pythonic", "[get(a=" + "-" * 20000 + "1)]"),
    ("pythonic", "[get(a=9j)]"),
    ("json", '{"answer": {"name": "get"}}'),
    ("json", '{"name": "getting", "arguments": {}}'),
    ("json", "{}"),
    ("json", "[]"),
    ("json", ""),
]


@pytest.mark.parametrize(("name", "text", "content", "calls"), GOOD)
def test_calls_are_found(name: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert found(name, text) == (content, calls)


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_what_is_no_call_is_text(name: str, text: str) -> None:
    assert found(name, text) == (text, [])


def test_a_bad_call_does_not_hide_a_good_one() -> None:
    text = 'a <tool_call>{bad} <tool_call>{"name": "now", "arguments": {}}</tool_call> b'
    assert found("hermes", text) == ("a <tool_call>{bad} b", [("now", "{}")])


def test_arguments_stream_as_they_come_after_id_and_name() -> None:
    text = '<tool_call>{"name": "get", "arguments": {"a": "bcd"}}</tool_call>'
    source = Source(NAMES, one_call=False, new_id=lambda: "id")
    reader = SteppedReader(source, FORMATS["hermes"].read(source))
    deltas = [delta for character in text for delta in reader.push(character)]
    assert deltas[0] == CallStart(0, "id", "get")
    assert deltas[1:] == [ArgumentsDelta(0, character) for character in '{"a": "bcd"}']


def test_with_one_call_the_answer_ends_there() -> None:
    text = (
        '<tool_call>{"name": "now", "arguments": {}}</tool_call><tool_call>{"name": "now", "arguments": {}}</tool_call>'
    )
    assert found("hermes", text, one_call=True) == ("", [("now", "{}")])


@pytest.mark.parametrize("name", FORMATS)
def test_ids_are_new_each_time(name: str) -> None:
    new_id = FORMATS[name].new_id
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id) == 9 and id.isalnum() for id in ids) == (name == "mistral")


def test_a_named_call_is_all_of_its_answer() -> None:
    source = Source(["get"], one_call=True, new_id=lambda: "id")
    reader = SteppedReader(source, FORCED.read(source))
    assert reader.push(' {"a": ') == [CallStart(0, "id", "get"), ArgumentsDelta(0, '{"a": ')]
    assert reader.push("1}") == [ArgumentsDelta(0, "1}")]
    assert reader.satisfied


FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_start|>",
    '{"name": "get", "arguments": {"a": 1}}', '{"name": "', "now", '"', '", "arguments": ', '"parameters": {}', "{",
    "}", "<tool", "[", "]", "get(a='x')", "now()", "get{}", "(", ")", ",", ";", " ", "\n", "\\", "'", "é🚌", "null",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
ANY_TEXT = st.one_of(SOUP, st.sampled_from([text for _, text, *_ in GOOD]), st.text(max_size=20))
ALL_FORMATS = {**FORMATS, "forced": FORCED}


@pytest.mark.parametrize("name", [name for name in ALL_FORMATS if name != "forced"])
@given(text=ANY_TEXT, tail=SOUP, sizes=st.lists(st.integers(1, 7), max_size=80), one_call=st.booleans())
@example(text='<tool_call>{"name": "now"', tail="}", sizes=[1] * 80, one_call=False)
def test_deltas_do_not_depend_on_how_the_text_comes(
    name: str, text: str, tail: str, sizes: list[int], one_call: bool
) -> None:
    text += tail
    whole = read(ALL_FORMATS[name], text, one_call=one_call)
    assert read(ALL_FORMATS[name], text, sizes, one_call=one_call) == whole
    assert read(ALL_FORMATS[name], text, [1] * len(text), one_call=one_call) == whole
    answer = said(whole)
    assert all(call.name in NAMES for call in answer.calls)
    assert len(answer.calls) <= 1 or not one_call
    if not answer.calls:
        assert answer.text == text


@pytest.mark.parametrize(("name", "text", "content", "calls"), GOOD)
def test_good_calls_survive_every_split(name: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    whole = read(FORMATS[name], text)
    for cut in range(len(text)):
        assert read(FORMATS[name], text, [cut]) == whole
    for _, arguments in calls:
        if not arguments.endswith(" "):
            assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize("name", FORMATS)
def test_what_often_looks_like_a_call_is_read_once(name: str) -> None:
    """To begin anew wherever a call may begin would take hours."""
    hostile = '<tool_call>{"arguments": {"[TOOL_CALLS][{"<|python_tag|>{"[get(a="'
    assert found(name, hostile * 2000, sizes=[7] * 20_000) == (hostile * 2000, [])
