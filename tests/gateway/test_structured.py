"""Structured output at the gateway: how it is asked for, and what is refused before the engine hears of it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from core_engine import Grammar, InvalidRequest
from tests.gateway.running import RunningGateway

SHIRT = {
    "type": "object",
    "properties": {"size": {"enum": ["S", "M"]}},
    "required": ["size"],
    "additionalProperties": False,
}


def schema_format(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "shirt", "schema": schema, **fields}}


def asked(server: RunningGateway) -> Grammar | None:
    (request,) = server.engine.submitted
    return request.sampling.grammar


@pytest.mark.parametrize("endpoint", ["chat", "complete"])
@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"response_format": {"type": "text"}}, None, None),
        ({"response_format": None, "structured_outputs": None}, None, None),
        ({"response_format": {"type": "json_object"}}, "json_object", ""),
        ({"response_format": schema_format(SHIRT, strict=True, description="A shirt.")}, "json_schema", SHIRT),
        ({"response_format": schema_format(SHIRT, strict=False)}, "json_schema", SHIRT),
        ({"response_format": {"type": "text"}, "structured_outputs": {"json": SHIRT}}, "json_schema", SHIRT),
        ({"structured_outputs": {"json": json.dumps(SHIRT)}}, "json_schema", SHIRT),
        ({"structured_outputs": {"regex": "a+", "json": None}}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "choice", ["yes", "no"]),
        ({"structured_outputs": {"grammar": 'start: "x"'}}, "lark", 'start: "x"'),
    ],
)
def test_the_engine_is_asked_for_it(
    server: RunningGateway, endpoint: str, fields: dict[str, Any], kind: str | None, text: Any
) -> None:
    answer = getattr(server, endpoint)(**fields)
    assert answer.status_code == 200, answer.text
    grammar = asked(server)
    if kind is None:
        assert grammar is None
    else:
        assert grammar is not None
        assert grammar.kind == kind
        assert (json.loads(grammar.text) if kind in {"json_schema", "choice"} else grammar.text) == text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": schema_format("x")}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
         "response_format.json_schema.name"),
        ({"response_format": schema_format({"type": "nope"})}, "response_format"),
        ({"response_format": schema_format({"type": "string", "pattern": "("})}, "response_format"),
        ({"response_format": schema_format(False)}, "response_format"),
        ({"response_format": schema_format({"enum": ["x" * 300_000]})}, "response_format"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "nonsense"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
    ],
)  # fmt: skip
def test_what_can_not_be_guaranteed_is_refused(server: RunningGateway, fields: dict[str, Any], param: str) -> None:
    for endpoint in (server.chat, server.complete):
        answer = endpoint(**fields)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["param"] == param
        assert param.split(".", maxsplit=1)[0] in error["message"]
    assert not server.engine.submitted


def test_a_grammar_that_ends_its_process_is_refused_and_nobody_else_notices(server: RunningGateway) -> None:
    links = {f"a{n}": {"type": "array", "items": {"$ref": f"#/$defs/a{n + 1}"}} for n in range(3000)}
    hostile = schema_format({"$ref": "#/$defs/a0", "$defs": {**links, "a3000": {}}})
    with ThreadPoolExecutor(3) as pool:
        refused = pool.submit(server.chat, response_format=hostile)
        structured = pool.submit(server.chat, response_format=schema_format(SHIRT))
        plain = pool.submit(server.chat)
    assert refused.result().status_code == 400
    assert refused.result().json()["error"]["code"] == "invalid_grammar"
    assert structured.result().status_code == plain.result().status_code == 200


def test_a_refusal_of_the_engine_names_the_field_too(server: RunningGateway) -> None:
    server.engine.script = server.saying("", refusal=InvalidRequest("It can't be followed.", "invalid_grammar"))
    error = server.chat(response_format={"type": "json_object"}).json()["error"]
    assert (error["param"], error["code"]) == ("response_format", "invalid_grammar")


def test_a_refusal_comes_before_a_stream_begins(server: RunningGateway) -> None:
    answer = server.chat(stream=True, structured_outputs={"regex": "("})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"


def test_a_large_grammar_is_not_sent_with_any_number_of_prompts(server: RunningGateway) -> None:
    large = {"regex": "a" * 200_000}
    assert server.complete(prompt=["x"] * 3, structured_outputs=large).status_code == 200
    refusal = server.complete(prompt=["x"] * 300, structured_outputs=large)
    assert refusal.status_code == 400
    assert refusal.json()["error"]["param"] == "structured_outputs"


def test_a_response_asks_for_it_by_its_own_names(server: RunningGateway) -> None:
    wanted = {"type": "json_schema", "name": "shirt", "strict": True, "schema": SHIRT}
    answer = server.post("/v1/responses", input="A shirt.", text={"format": wanted}, store=False)
    assert answer.status_code == 200, answer.text
    grammar = asked(server)
    assert grammar is not None
    assert json.loads(grammar.text) == SHIRT
    for schema in ({"type": "nope"}, "x"):
        refusal = server.post("/v1/responses", input="A shirt.", text={"format": {**wanted, "schema": schema}})
        assert refusal.status_code == 400
        assert refusal.json()["error"]["param"] == "text.format"


def test_a_message_asks_for_it_by_its_own_names(server: RunningGateway) -> None:
    def ask(schema: Any) -> httpx.Response:
        wanted = {"format": {"type": "json_schema", "schema": schema}}
        messages = [{"role": "user", "content": "A shirt."}]
        return server.post("/v1/messages", messages=messages, max_tokens=20, output_config=wanted)

    answer = ask(SHIRT)
    assert answer.status_code == 200, answer.text
    grammar = asked(server)
    assert grammar is not None
    assert json.loads(grammar.text) == SHIRT
    for schema in ({"type": "nope"}, "x", None):
        refusal = ask(schema)
        assert refusal.status_code == 400
        assert "'output_config.format'" in refusal.json()["error"]["message"]
