"""Structured output of a served model, whole and streamed."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.blackbox.client import CHAT, COMPLETIONS, Client, content, together
from tests.support.schemas import random_schemas


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": schema}}


def test_schemas_hold_at_temperature_1_together_with_free_answers(client: Client) -> None:
    schemas = random_schemas(12, seed=7)
    calls = [
        lambda schema=schema: client.chat(response_format=schema_format(schema), temperature=1.0, max_tokens=1500)
        for schema in schemas
    ]
    free = [lambda: client.chat(max_tokens=40, ignore_eos=True)] * 4
    answers = together([*calls, *free])
    for schema, answer in zip(schemas, answers, strict=False):
        assert answer["choices"][0]["finish_reason"] == "stop"
        jsonschema.validate(json.loads(content(answer)), schema)
    assert len({content(answer) for answer in answers[len(schemas) :]}) == 1


def test_streams_and_whole_answers_are_the_same(client: Client) -> None:
    for wanted in ({"json": {"type": "object", "properties": {"a": {"enum": ["ä", "🚌"]}}}}, {"regex": "[a-z]{5,9}!"}):
        body = client.chat_body(structured_outputs=wanted, max_tokens=100)
        events = client.stream(CHAT, body)
        assert events.text() == content(client.ok(CHAT, body))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_every_kind_on_both_endpoints(client: Client, path: str) -> None:
    body = client.chat_body if path == CHAT else client.completion_body
    options = {"temperature": 1.0, "max_tokens": 60, "n": 3}
    for wanted, pattern in (
        ({"choice": ["left", "right"]}, "left|right"),
        ({"regex": "[0-9]{3}-[0-9]{4}"}, "[0-9]{3}-[0-9]{4}"),
        ({"grammar": 'start: "<" /[a-z]{2,4}/ ">"'}, "<[a-z]{2,4}>"),
        ({"json": {"type": "boolean"}}, "true|false"),
    ):
        answer = client.ok(path, body(structured_outputs=wanted, **options))
        for choice in answer["choices"]:
            text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
            assert choice["finish_reason"] == "stop"
            assert re.fullmatch(pattern, text)


@pytest.mark.parametrize(
    "fields",
    [
        {"min_tokens": 50},
        {"ignore_eos": True},
        {"logit_bias": {"5": 100, "2": -100}},
        {"bad_words": ["l", "r", "le", "ri"]},
        {"allowed_token_ids": [5, 6]},
        {"stop_token_ids": [7]},
        {"repetition_penalty": 5.0, "presence_penalty": 2.0},
        {"top_k": 1, "top_p": 0.01},
    ],
)
def test_the_grammar_wins_over_what_contradicts_it(client: Client, fields: dict[str, Any]) -> None:
    answer = client.chat(structured_outputs={"choice": ["left", "right"]}, max_tokens=60, **fields)
    assert content(answer) in {"left", "right"}


def test_a_stop_string_and_the_length_cut(client: Client) -> None:
    wanted = {"regex": "a{30}b{30}"}
    assert content(client.chat(structured_outputs=wanted, max_tokens=100, stop="b")) == "a" * 30
    cut = client.chat(structured_outputs=wanted, max_tokens=2)
    assert cut["choices"][0]["finish_reason"] == "length"


class Shirt(BaseModel):
    """What the SDK turns into a strict schema by itself."""

    size: int
    clean: bool


def test_the_sdk_parses_into_a_class(sdk: openai.OpenAI, client: Client) -> None:
    completion = sdk.chat.completions.parse(
        model=client.model, messages=[{"role": "user", "content": "A shirt."}], response_format=Shirt, max_tokens=200
    )
    assert isinstance(completion.choices[0].message.parsed, Shirt)


def test_a_schema_that_can_not_be_followed_leaves_the_server_as_it_was(client: Client) -> None:
    for schema in ({"type": "nope"}, {"type": "string", "pattern": "("}):
        refusal = client.post(CHAT, client.chat_body(response_format=schema_format(schema)))
        assert refusal.status_code == 400
        assert refusal.json()["error"]["param"] == "response_format"
    client.canary()


def weather(**schema: Any) -> dict[str, Any]:
    parameters = {"type": "object", "additionalProperties": False, **schema}
    return {"type": "function", "function": {"name": "weather", "parameters": parameters, "strict": True}}


def test_beside_tools_an_answer_is_of_the_form_or_calls(client: Client) -> None:
    town = {"properties": {"town": {"enum": ["Oslo", "Rome"]}}, "required": ["town"]}
    number = {"type": "object", "properties": {"number": {"enum": [1, 2]}}, "required": ["number"]}
    fields = {"tools": [weather(**town)], "temperature": 2.0, "max_tokens": 400, "n": 8, "seed": 1}
    answer = client.chat(response_format=schema_format({**number, "additionalProperties": False}), **fields)
    for choice in answer["choices"]:
        message = choice["message"]
        for call in message.get("tool_calls", ()):
            jsonschema.validate(json.loads(call["function"]["arguments"]), town)
        assert (choice["finish_reason"] == "tool_calls") == ("tool_calls" in message)
        if "tool_calls" not in message:
            jsonschema.validate(json.loads(message["content"]), number)
