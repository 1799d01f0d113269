"""Calls that a request demands: the grammar that holds the model to them, and the answer that is nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, grammar_from

from core_engine import Grammar
from gateway.protocol.tools import FunctionTool
from gateway.tools.choice import ToolUse
from gateway.tools.forced import forced_grammar
from tests.gateway.events import read_events
from tests.gateway.running import RunningGateway
from tests.gateway.tool_examples import TIME, TOOLS, functions, message_of, prompt_of
from tests.support.plain_http import openai_client
from tests.support.tiny_model import byte_level_tokenizer

TOWN = FunctionTool(
    name="weather",
    parameters={
        "properties": {"town": {"$ref": "#/$defs/Town"}},
        "required": ["town"],
        "additionalProperties": False,
        "$defs": {"Town": {"enum": ["Oslo", "Rome"]}},
        "x-guidance": {"lenient": True, "whitespace_flexible": True},
    },
)
NOTHING = FunctionTool(name="time")
OSLO = '{"name": "weather", "arguments": {"town": "Oslo"}}'
NOW = '{"name": "time", "arguments": {}}'
NAMED = {"type": "function", "function": {"name": "weather"}}


def grammar_of(server: RunningGateway) -> Grammar | None:
    return server.engine.submitted[-1].sampling.grammar


def fits(grammar: Grammar, text: str) -> bool:
    """Whether a whole output may be this text."""
    tokenizer = byte_level_tokenizer()
    source = grammar.text if grammar.kind == "lark" else grammar_from("json_schema", grammar.text)
    matcher = LLMatcher(LLTokenizer(tokenizer.to_str()), source)
    assert not matcher.get_error()
    token_ids = tokenizer.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("use", "good", "bad"),
    [
        (ToolUse((TOWN,), "named", True), ['{"town": "Oslo"}'], ["{}", '{"town": "Paris"}', "", OSLO]),
        (
            ToolUse((TOWN, NOTHING), "required", False),
            [f"[{OSLO}]", f"[{NOW}, {OSLO}]", f"[{', '.join([NOW] * 16)}]"],
            ["[]", OSLO, f"[{', '.join([NOW] * 17)}]", f"[{NOW}  ", '[{"name": "weather", "arguments": {}}]'],
        ),
        (ToolUse((TOWN, NOTHING), "required", True), [f"[{OSLO}]", f"[{NOW}]"], ["[]", f"[{NOW}, {OSLO}]"]),
    ],
)
def test_the_grammar_allows_calls_and_nothing_else(use: ToolUse, good: list[str], bad: list[str]) -> None:
    grammar = forced_grammar(use)
    assert [text for text in good if not fits(grammar, text)] == []
    assert [text for text in bad if fits(grammar, text)] == []


def test_a_required_call_is_made(server: RunningGateway) -> None:
    server.engine.script = server.saying(f"[{OSLO}, {NOW}]")
    (choice,) = server.chat(tools=TOOLS, tool_choice="required").json()["choices"]
    assert functions(choice["message"]) == [("weather", {"town": "Oslo"}), ("time", {})]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    grammar = grammar_of(server)
    assert grammar is not None
    assert fits(grammar, '[{"name": "weather", "arguments": {"town": "x"}}, {"name": "time", "arguments": {}}]')


def test_a_named_call_is_made(server: RunningGateway) -> None:
    message = message_of(server, '{"town": "Oslo"}', tool_choice=NAMED)
    assert functions(message) == [("weather", {"town": "Oslo"})]
    assert "weather" in prompt_of(server)
    assert grammar_of(server) == Grammar(
        "json_schema", json.dumps(TOOLS[0]["function"]["parameters"], separators=(",", ":"))
    )


def test_a_call_among_the_allowed_is_made(server: RunningGateway) -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    assert functions(message_of(server, f"[{NOW}]", tool_choice=choice)) == [("time", {})]
    grammar = grammar_of(server)
    assert grammar is not None
    assert "weather" not in grammar.text


@pytest.mark.parametrize("tool_choice", ["auto", "none"])
def test_nothing_is_demanded_otherwise(server: RunningGateway, tool_choice: str) -> None:
    server.chat(tools=TOOLS, tool_choice=tool_choice)
    assert grammar_of(server) is None


def test_the_sdk_streams_a_named_call(server: RunningGateway) -> None:
    server.engine.script = server.saying('{"town": "Oslo"}')
    with (
        openai_client(server.url) as sdk,
        sdk.chat.completions.stream(
            model="tiny",
            messages=[{"role": "user", "content": "?"}],
            tools=TOOLS,
            tool_choice=NAMED,  # type: ignore[arg-type]
        ) as stream,
    ):
        (call,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("weather", '{"town": "Oslo"}')


def test_a_stop_string_does_not_cut_a_demanded_call(server: RunningGateway) -> None:
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": NAMED, "stop": ["town", "}"]}
    assert functions(message_of(server, '{"town": "Oslo"}', **fields)) == [("weather", {"town": "Oslo"})]


@pytest.mark.parametrize("tool_choice", [NAMED, "required"])
def test_a_demanded_call_cut_by_the_limit_says_length(server: RunningGateway, tool_choice: Any) -> None:
    text = '{"town": "Oslo"}' if tool_choice is NAMED else f"[{OSLO}]"
    server.engine.script = server.saying(text)
    for max_tokens in (1, 3, len(server.text_model.encode(text)) - 3):
        events = read_events(
            server.chat(tools=TOOLS, tool_choice=tool_choice, max_tokens=max_tokens, stream=True).content
        )
        assert events.finish_reason() == "length"


def test_reasoning_is_not_looked_for_in_a_demanded_call(server: RunningGateway) -> None:
    message = message_of(server, f"[{NOW}]", tools=[TIME], tool_choice="required", n=1)
    assert "reasoning_content" not in message
