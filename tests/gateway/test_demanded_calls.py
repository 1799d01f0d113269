"""Calls that Responses and Messages demand, whole and streamed: held by a grammar, told in each API's own form."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from core_engine import Grammar
from tests.gateway import anthropic_api
from tests.gateway.anthropic_api import message, streamed
from tests.gateway.respond import respond
from tests.gateway.running import RunningGateway

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
LISTED = '[{"name": "weather", "arguments": {"town": "Oslo"}}, {"name": "weather", "arguments": {"town": "Rome"}}]'
ALONE = '{"town": "Oslo"}'
OSLO, ROME = ("weather", {"town": "Oslo"}), ("weather", {"town": "Rome"})

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "weather", "parameters": TOWN},
    {"type": "function", "name": "time"},
]
NAMED = {"type": "function", "name": "weather"}
OF_RESPONSES = [
    ("required", {}, LISTED, [OSLO, ROME]),
    ("required", {"parallel_tool_calls": False}, LISTED, [OSLO]),
    (NAMED, {}, ALONE, [OSLO]),
    ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, {}, LISTED, [OSLO, ROME]),
]
MESSAGE_TOOLS: list[dict[str, Any]] = [
    {"name": "weather", "input_schema": TOWN},
    {"name": "time", "input_schema": {"type": "object"}},
]
OF_MESSAGES = [
    ({"type": "any"}, LISTED, [OSLO, ROME]),
    ({"type": "any", "disable_parallel_tool_use": True}, LISTED, [OSLO]),
    ({"type": "tool", "name": "weather"}, ALONE, [OSLO]),
]


def check_grammar(server: RunningGateway, said: str) -> None:
    """The engine is held to the arguments where the tool is named, else to calls."""
    grammar = server.engine.submitted[-1].sampling.grammar
    assert grammar is not None
    if said == ALONE:
        assert (grammar.kind, json.loads(grammar.text)) == ("json_schema", TOWN)
    else:
        assert grammar.kind == "lark"
        assert '"weather' in grammar.text.replace("\\", "")


def called(items: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    assert {item["type"] for item in items} == {"function_call"}
    assert all(item["status"] == "completed" and item["call_id"] for item in items)
    return [(item["name"], json.loads(item["arguments"])) for item in items]


@pytest.mark.parametrize(("choice", "fields", "said", "calls"), OF_RESPONSES)
def test_a_response_calls(
    server: RunningGateway, sdk: openai.OpenAI, choice: Any, fields: dict[str, Any], said: str, calls: Any
) -> None:
    server.engine.script = server.saying(said)
    body = respond(server, tools=TOOLS, tool_choice=choice, **fields)
    assert called(body["output"]) == calls
    assert (body["status"], body["tool_choice"]) == ("completed", choice)
    check_grammar(server, said)
    with sdk.responses.stream(
        model="tiny",
        input="Rain?",
        tools=TOOLS,
        tool_choice=choice,
        **fields,  # type: ignore[arg-type]
    ) as stream:
        final = stream.get_final_response()
    assert called([item.to_dict() for item in final.output]) == calls
    check_grammar(server, said)


def used(blocks: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    assert {block["type"] for block in blocks} == {"tool_use"}
    return [(block["name"], block["input"]) for block in blocks]


@pytest.mark.parametrize(("choice", "said", "calls"), OF_MESSAGES)
def test_a_message_calls(server: RunningGateway, choice: Any, said: str, calls: Any) -> None:
    server.engine.script = server.saying(said)
    fields = {"tools": MESSAGE_TOOLS, "tool_choice": choice}
    for body in (message(server, **fields), streamed(server, **fields)):
        assert used(body["content"]) == calls
        assert body["stop_reason"] == "tool_use"
        check_grammar(server, said)


def test_a_demanded_call_that_was_cut_says_so(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying('{"town": "Os', end=False)
    body = respond(server, tools=TOOLS, tool_choice=NAMED, max_output_tokens=4)
    (item,) = body["output"]
    assert (body["status"], item["type"], item["status"]) == ("incomplete", "function_call", "incomplete")
    choice = {"type": "tool", "name": "weather"}
    for whole in (message, streamed):
        assert whole(server, tools=MESSAGE_TOOLS, tool_choice=choice, max_tokens=4)["stop_reason"] == "max_tokens"


def test_strict_tools_are_held_to_their_schemas_where_they_are_not_demanded(server: RunningGateway) -> None:
    respond(server, tools=[{**TOOLS[0], "strict": True}])
    held = server.engine.submitted[-1].sampling.grammar
    assert isinstance(held, Grammar)
    message(server, tools=[{**MESSAGE_TOOLS[0], "strict": True}])
    assert server.engine.submitted[-1].sampling.grammar == held
    message(server, tools=MESSAGE_TOOLS)
    assert server.engine.submitted[-1].sampling.grammar is None


def test_the_result_of_a_demanded_call_is_answered(server: RunningGateway) -> None:
    server.engine.script = server.saying(ALONE)
    with anthropic_api.client_of(server) as client:
        asked: Any = anthropic_api.asked(tools=MESSAGE_TOOLS, tool_choice={"type": "tool", "name": "weather"})
        first = client.messages.create(**asked)
        (call,) = first.content
        assert isinstance(call, anthropic.types.ToolUseBlock)
        server.engine.script = server.saying("Rain.")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        turns = [*asked["messages"], {"role": "assistant", "content": first.content}]
        asked = {**asked, "messages": [*turns, {"role": "user", "content": [result]}], "tool_choice": {"type": "auto"}}
        (text,) = client.messages.create(**asked).content
        assert isinstance(text, anthropic.types.TextBlock)
        assert text.text == "Rain."
