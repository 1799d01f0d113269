"""`/v1/messages` as Anthropic's SDK uses it: messages and events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.anthropic_api import (
    CALL,
    COUNT,
    HELLO,
    TWO_CALLS,
    WEATHER,
    ask,
    asked,
    client_of,
    error,
    events_of,
    message,
    streamed,
)
from tests.gateway.fake_engine import MODEL
from tests.gateway.respond import prompt
from tests.gateway.running import RunningGateway


def texts(body: dict[str, Any]) -> list[str]:
    return [block["text"] for block in body["content"]]


def test_a_message_has_the_types_of_the_sdk(server: RunningGateway) -> None:
    body = message(server, system="Be brief.", temperature=0.5, top_k=7, top_p=0.9, metadata={"user_id": "u"})
    assert texts(body) == ["Hi."]
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", MODEL)
    assert (body["stop_reason"], body["stop_sequence"]) == ("end_turn", None)
    (request,) = server.engine.submitted
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k, sampling.top_p) == (500, 0.5, 7, 0.9)
    assert body["usage"]["input_tokens"] == len(request.prompt_token_ids)
    assert body["usage"]["output_tokens"] > 0
    assert "Be brief." in prompt(server)


def test_the_sdk_creates_and_streams(server: RunningGateway) -> None:
    with client_of(server) as client:
        created = client.messages.create(**asked())
        with client.messages.stream(**asked()) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
    assert created.content[0].type == "text"
    assert created.content[0].text == "".join(pieces) == "Hi."
    assert len(pieces) > 1
    assert final.usage == created.usage
    assert created._request_id


def test_events_come_in_order(server: RunningGateway) -> None:
    events = events_of(server)
    deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    expected = [
        "message_start", "content_block_start", *["content_block_delta"] * len(deltas), "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert [event["type"] for event in events] == expected
    assert "".join(deltas) == "Hi."
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None


@pytest.mark.parametrize("said", ["Hi.", "", CALL, TWO_CALLS, "one STOP two"])
def test_a_stream_comes_to_the_whole_message(server: RunningGateway, said: str) -> None:
    server.engine.script = server.saying(said, cached_tokens=4)
    fields = {"tools": [WEATHER], "stop_sequences": ["STOP"]}
    both = [message(server, **fields), streamed(server, **fields)]
    for body in both:
        del body["id"]
        for block in body["content"]:
            block.pop("id", None)
        for name, value in list(body.items()):
            if value is None:
                del body[name]
    for block in both[0]["content"]:
        if block["type"] == "text":
            block.pop("citations")
    for block in both[1]["content"]:
        block.pop("citations", None)
        block.pop("parsed_output", None)
    assert both[0] == both[1]


def test_a_prompt_that_is_cached_counts_apart(server: RunningGateway) -> None:
    server.engine.script = server.saying("Hi.", cached_tokens=4)
    usage = message(server)["usage"]
    assert usage["cache_read_input_tokens"] == 4
    assert usage["input_tokens"] + 4 == len(server.engine.submitted[0].prompt_token_ids)
    assert events_of(server)[-2]["usage"] == usage


def test_running_out_of_tokens_is_told(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two three four", end=False)
    assert message(server, max_tokens=2)["stop_reason"] == "max_tokens"
    assert events_of(server, max_tokens=2)[-2]["delta"]["stop_reason"] == "max_tokens"


def test_the_stop_sequence_that_matched_is_told(server: RunningGateway) -> None:
    server.engine.script = server.saying("one STOP two")
    body = message(server, stop_sequences=["two", "STOP"])
    assert texts(body) == ["one "]
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "STOP")
    delta = events_of(server, stop_sequences=["two", "STOP"])[-2]["delta"]
    assert delta == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}
    assert message(server, stop_sequences=["other"])["stop_reason"] == "end_turn"
    assert texts(message(server, stop_sequences=[f"s{number}" for number in range(20)])) == ["one STOP two"]


def test_turns_become_messages(server: RunningGateway) -> None:
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Weather", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "in Bern?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "secret", "signature": ""},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "no net"}],
                 "is_error": True},
                {"type": "text", "text": "Try again."},
            ],
        },
    ]  # fmt: skip
    message(server, messages=turns, system=[{"type": "text", "text": "Answer well."}], tools=[WEATHER])
    seen = prompt(server)
    expected = ("Answer well.", "Weather\nin Bern?", "I look.", '"Bern"', "Error: no net", "Try again.")
    order = [seen.index(text) for text in expected]
    assert order == sorted(order)
    assert "xyz" not in seen


def test_text_of_the_assistant_is_gone_on_from(server: RunningGateway) -> None:
    message(server, messages=[*HELLO, {"role": "assistant", "content": "The answer is ("}])
    assert prompt(server).endswith("The answer is (")


def test_a_tool_is_used_and_its_result_answered(server: RunningGateway) -> None:
    server.engine.script = server.saying(CALL)
    with client_of(server) as client:
        first = client.messages.create(**asked(tools=[WEATHER]))
        assert first.stop_reason == "tool_use"
        text, call = first.content
        assert text.type == "text"
        assert text.text.strip() == "Let me see."
        assert call.type == "tool_use"
        assert (call.name, call.input) == ("weather", {"city": "Bern"})
        server.engine.script = server.saying("Sunny.")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "24 degrees"}
        turns = [*HELLO, first.to_param(), {"role": "user", "content": [result]}]
        second = client.messages.create(**asked(tools=[WEATHER], messages=turns))
    assert texts(json.loads(second.to_json())) == ["Sunny."]
    seen = prompt(server)
    assert seen.index("Bern") < seen.index("24 degrees")


def test_the_use_of_a_tool_is_streamed(server: RunningGateway) -> None:
    server.engine.script = server.saying(CALL)
    events = [event for event in events_of(server, tools=[WEATHER]) if event.get("index") == 1]
    assert events[0]["content_block"]["input"] == {}
    deltas = [event["delta"] for event in events[1:-1]]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}
    assert json.loads("".join(delta["partial_json"] for delta in deltas)) == {"city": "Bern"}


def test_arguments_that_were_cut_are_kept_under_a_key(server: RunningGateway) -> None:
    server.engine.script = server.saying(CALL.split('Bern"', maxsplit=1)[0], end=False)
    body = message(server, tools=[WEATHER])
    assert body["stop_reason"] == "max_tokens"
    (arguments,) = body["content"][1]["input"].values()
    assert arguments.startswith('{"city"')


@pytest.mark.parametrize(
    ("choice", "offered", "calls"),
    [({"type": "auto"}, True, 2), ({"type": "auto", "disable_parallel_tool_use": True}, True, 1),
     ({"type": "none"}, False, 0)],
)  # fmt: skip
def test_tool_choice(server: RunningGateway, choice: dict[str, Any], offered: bool, calls: int) -> None:
    server.engine.script = server.saying(TWO_CALLS)
    body = message(server, tools=[WEATHER], tool_choice=choice)
    assert [block["type"] for block in body["content"]].count("tool_use") == calls
    assert ("Tells the weather." in prompt(server)) is offered


def test_thinking_is_a_block_of_its_own(thinking: RunningGateway) -> None:
    thinking.engine.script = thinking.saying("<think>Well.</think>Hi.")
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for body in (message(thinking, **fields), streamed(thinking, **fields)):
        thought, text = body["content"]
        assert (thought["type"], thought["thinking"]) == ("thinking", "Well.")
        assert text["text"] == "Hi."


def test_tokens_are_counted_as_a_message_would_have_them(server: RunningGateway) -> None:
    fields = {"model": MODEL, "messages": HELLO, "system": "Be brief.", "tools": [WEATHER]}
    with client_of(server) as client:
        counted = client.messages.count_tokens(**fields)  # type: ignore[arg-type]
    message(server, **fields)
    assert counted.input_tokens == len(server.engine.submitted[0].prompt_token_ids)
    long = [{"role": "user", "content": "word " * 5000}]
    answer = server.http.post(COUNT, json={"model": MODEL, "messages": long})
    assert answer.json()["input_tokens"] > server.engine.info.max_model_len


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "'messages'"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 10**6}, "'max_tokens'"),
        ({"temperature": 1.5}, "'temperature'"),
        ({"stop_sequences": [""]}, "'stop_sequences[0]'"),
        ({"stop_sequences": ["x"] * 100}, "'stop_sequences'"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "'messages'"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}]}, "content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "content[0].tool_use_id"),
        ({"messages": [*HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}]},
         "'messages'"),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, "messages"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'tools'"),
        ({"tools": [WEATHER, WEATHER]}, "'tools'"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "'tool_choice'"),
        ({"tool_choice": {"type": "any"}}, "'tool_choice'"),
        ({"tool_choice": {"type": "maybe"}}, "'tool_choice.type'"),
        ({"thinking": {"type": "sometimes"}}, "'thinking.type'"),
        ({"output_config": {"format": {"type": "telepathy"}}}, "'output_config.format'"),
        ({"mcp_servers": [{"type": "url"}]}, "'mcp_servers'"),
        ({"container": "c"}, "'container'"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(server: RunningGateway, fields: dict[str, Any], named: str) -> None:
    refused = error(ask(server, **fields), 400)
    assert refused["type"] == "invalid_request_error"
    assert named in refused["message"]
    assert not server.engine.submitted
    assert texts(message(server)) == ["Hi."]
