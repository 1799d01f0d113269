"""`/v1/responses` as the official SDK uses it: answers and events."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from core_engine import EngineDied
from tests.gateway.fake_engine import MODEL
from tests.gateway.respond import ask, error, events_of, prompt, respond, text_of
from tests.gateway.running import RunningGateway


def test_a_response_has_the_types_of_the_sdk(server: RunningGateway) -> None:
    response = respond(server, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5, max_output_tokens=50)
    assert text_of(response) == "Hi."
    assert (response["status"], response["model"], response["metadata"]) == ("completed", MODEL, {"a": "b"})
    assert (response["temperature"], response["max_output_tokens"]) == (0.5, 50)
    usage = response["usage"]
    assert usage["input_tokens"] == len(server.engine.submitted[0].prompt_token_ids)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert "Be brief." in prompt(server)
    assert server.engine.submitted[0].sampling.max_tokens == 50


def test_the_sdk_streams(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model=MODEL, input="Hello") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "Hi."
    assert len(deltas) > 1
    assert sdk.responses.retrieve(final.id).output_text == "Hi."


def test_events_come_in_order(server: RunningGateway) -> None:
    events = events_of(server)
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = [event["delta"] for event in events if "delta" in event]
    expected = [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * len(deltas),
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert kinds == expected
    assert "".join(deltas) == "Hi."
    assert events[0]["response"]["status"] == "in_progress"
    assert events[-1]["response"]["status"] == "completed"
    assert events[-2]["item"] == events[-1]["response"]["output"][0]


def test_a_stream_ends_as_the_whole_response_does(server: RunningGateway) -> None:
    changing = ("id", "created_at", "completed_at")
    whole = respond(server)
    streamed = events_of(server)[-1]["response"]
    for response in (whole, streamed):
        del response["output"][0]["id"]
    assert {k: v for k, v in whole.items() if k not in changing} == {
        k: v for k, v in streamed.items() if k not in changing
    }


def test_an_answer_without_text_is_an_empty_message(server: RunningGateway) -> None:
    server.engine.script = server.saying("")
    assert text_of(respond(server)) == ""
    kinds = [event["type"] for event in events_of(server)]
    assert "response.content_part.added" in kinds
    assert "response.output_text.delta" not in kinds
    assert kinds[-1] == "response.completed"


def test_running_out_of_tokens_is_incomplete(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two three four", end=False)
    response = respond(server, max_output_tokens=2)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    assert response["completed_at"] is None
    assert events_of(server, max_output_tokens=2)[-1]["type"] == "response.incomplete"


def test_an_engine_that_dies_fails_the_stream(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two three", failure=EngineDied("gone"), failure_after=2)
    last = events_of(server)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert text_of(last["response"])
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_logprobs_come_where_they_are_asked_for(server: RunningGateway) -> None:
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    (part,) = respond(server, **include)["output"][0]["content"]
    assert "".join(entry["token"] for entry in part["logprobs"]) == "Hi."
    assert len(part["logprobs"][0]["top_logprobs"]) == 2
    streamed = [
        entry for event in events_of(server, **include) for entry in event.get("logprobs", []) if "delta" in event
    ]
    assert streamed == part["logprobs"]
    assert respond(server)["output"][0]["content"][0]["logprobs"] == []


def test_items_become_messages(server: RunningGateway) -> None:
    items = [
        {"role": "developer", "content": "Answer well."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "secret"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Bern"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "It is sunny."}]},
        {"role": "user", "content": "Thanks."},
    ]
    respond(server, input=items)
    asked = prompt(server)
    order = [asked.index(text) for text in ("Answer well.", "Weather?", "sunny", "It is sunny.", "Thanks.")]
    assert order == sorted(order)
    assert "secret" not in asked


WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
CALL = """Let me see.<tool_call>
{"name": "weather", "arguments": {"city": "Bern"}}
</tool_call>"""


def test_a_function_is_called_and_its_output_answered(server: RunningGateway) -> None:
    server.engine.script = server.saying(CALL)
    first = respond(server, tools=[WEATHER])
    message, call = first["output"]
    assert message["content"][0]["text"].strip() == "Let me see."
    assert (call["type"], call["name"], call["status"]) == ("function_call", "weather", "completed")
    assert json.loads(call["arguments"]) == {"city": "Bern"}
    assert first["status"] == "completed"
    assert first["tools"][0]["name"] == "weather"
    server.engine.script = server.saying("Sunny.")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "24 degrees"}
    second = respond(server, tools=[WEATHER], input=[output], previous_response_id=first["id"])
    assert text_of(second) == "Sunny."
    asked = prompt(server)
    assert asked.index("Bern") < asked.index("24 degrees")


def test_a_function_call_is_streamed(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying(CALL)
    events = [event for event in events_of(server, tools=[WEATHER]) if event.get("output_index") == 1]
    kinds = [event["type"].removeprefix("response.") for event in events]
    arguments = [event["delta"] for event in events if "delta" in event]
    deltas = ["function_call_arguments.delta"] * len(arguments)
    assert kinds == ["output_item.added", *deltas, "function_call_arguments.done", "output_item.done"]
    assert json.loads("".join(arguments)) == json.loads(events[-1]["item"]["arguments"]) == {"city": "Bern"}
    with sdk.responses.stream(model=MODEL, input="Hello", tools=[WEATHER]) as stream:  # type: ignore[list-item]
        call = stream.get_final_response().output[1]
    assert call.type == "function_call"


def test_reasoning_is_an_item_of_its_own(thinking: RunningGateway) -> None:
    thinking.engine.script = thinking.saying("<think>Well.</think>Hi.")
    response = respond(thinking)
    thought, message = response["output"]
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "Well.")
    assert message["content"][0]["text"] == "Hi."
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    events = events_of(thinking)
    assert "".join(event["delta"] for event in events if event["type"].endswith("reasoning_text.delta")) == "Well."


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"max_output_tokens": 10**6}, "max_output_tokens"),
        ({"max_output_tokens": "5"}, "max_output_tokens"),
        ({"input": "word " * 5000}, "input"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "hosted"}}, "tool_choice.type"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"background": True, "stream": True}, "stream"),
        ({"text": {"format": {"type": "telepathy"}}}, "text.format"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(server: RunningGateway, fields: dict[str, Any], param: str) -> None:
    assert error(ask(server, **fields), 400)["param"] == param
    assert not server.engine.submitted
    assert respond(server)["status"] == "completed"
