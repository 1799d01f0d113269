"""`/v1/responses` as the official SDK uses it: answers, events, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import openai
import pytest
from openai.types import responses as sdk_types
from pydantic import TypeAdapter

from core_engine import EngineDied, KeyConfig
from core_engine.text import TextModel
from tests.gateway.fake_engine import MODEL
from tests.gateway.raw import eventually
from tests.gateway.running import RunningGateway, running_gateway

RESPONSES = "/v1/responses"
EVENTS: TypeAdapter[Any] = TypeAdapter(sdk_types.ResponseStreamEvent)


@pytest.fixture
def sdk(server: RunningGateway) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


def client_of(server: RunningGateway, key: str = "none") -> openai.OpenAI:
    http = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0, http_client=http)


def ask(server: RunningGateway, **fields: Any) -> httpx.Response:
    return server.post(RESPONSES, **{"input": "Hello", **fields})


def respond(server: RunningGateway, **fields: Any) -> dict[str, Any]:
    """A whole response, strictly of the SDK's type."""
    answer = ask(server, **fields)
    assert answer.status_code == 200, answer.text
    sdk_types.Response.model_validate_json(answer.text, strict=True)
    body: dict[str, Any] = answer.json()
    return body


def events_of(server: RunningGateway, **fields: Any) -> list[dict[str, Any]]:
    """All events of a stream, each strictly of its type in the SDK and named as it is typed."""
    answer = ask(server, stream=True, **fields)
    assert answer.headers["content-type"] == "text/event-stream"
    events = []
    for number, block in enumerate(answer.text.removesuffix("\n\n").split("\n\n")):
        name, data = block.split("\n")
        EVENTS.validate_json(data.removeprefix("data: "), strict=True)
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def text_of(response: dict[str, Any]) -> str:
    (message,) = response["output"]
    (part,) = message["content"]
    text: str = part["text"]
    return text


def prompt(server: RunningGateway) -> str:
    """What the model was last asked."""
    return server.text_model.decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    envelope: dict[str, Any] = answer.json()["error"]
    return envelope


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


def test_the_sdk_creates_reads_lists_and_deletes(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="Hello")
    assert created.output_text == "Hi."
    assert sdk.responses.retrieve(created.id) == created
    (item,) = sdk.responses.input_items.list(created.id).data
    assert isinstance(item, sdk_types.ResponseInputMessageItem)
    assert (item.role, item.content[0].type) == ("user", "input_text")
    assert sdk.responses.cancel(created.id) == created  # it has ended already
    sdk.responses.delete(created.id)
    for call in (sdk.responses.retrieve, sdk.responses.cancel, sdk.responses.delete, sdk.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(created.id)


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


def test_a_conversation_goes_on(server: RunningGateway) -> None:
    first = respond(server, input="My name is Ann.", instructions="Only once.")
    second = respond(server, input="What is it?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    asked = prompt(server)
    assert asked.index("My name is Ann.") < asked.index("Hi.") < asked.index("What is it?")
    assert "Only once." not in asked
    respond(server, input="Sure?", previous_response_id=second["id"])
    assert prompt(server).count("Hi.") == 2
    listed = server.http.get(f"{RESPONSES}/{second['id']}/input_items", params={"order": "asc"}).json()["data"]
    assert [item["role"] for item in listed] == ["user", "assistant", "user"]


def test_a_conversation_goes_on_though_its_beginning_was_deleted(server: RunningGateway) -> None:
    first = respond(server, input="My name is Ann.")
    second = respond(server, input="What is it?", previous_response_id=first["id"])
    assert server.http.delete(f"{RESPONSES}/{first['id']}").json()["deleted"] is True
    respond(server, previous_response_id=second["id"])
    assert "My name is Ann." in prompt(server)
    gone = error(ask(server, previous_response_id=first["id"]), 400)
    assert (gone["code"], gone["param"]) == ("previous_response_not_found", "previous_response_id")


def test_what_is_not_stored_is_not_there(server: RunningGateway) -> None:
    response = respond(server, store=False)
    assert response["store"] is False
    assert error(server.http.get(f"{RESPONSES}/{response['id']}"), 404)["code"] == "response_not_found"


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


def test_reasoning_is_an_item_of_its_own(text_model: TextModel) -> None:
    with running_gateway(text_model, {"reasoning_parser": "think"}) as server:
        server.engine.script = server.saying("<think>Well.</think>Hi.")
        response = respond(server)
        thought, message = response["output"]
        assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "Well.")
        assert message["content"][0]["text"] == "Hi."
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        events = events_of(server)
        assert "".join(event["delta"] for event in events if event["type"].endswith("reasoning_text.delta")) == "Well."


def test_input_items_come_in_pages(server: RunningGateway, sdk: openai.OpenAI) -> None:
    items = [{"role": "user", "content": str(number)} for number in range(5)]
    response = respond(server, input=items)
    for order, expected in (("asc", "01234"), ("desc", "43210")):
        pages = sdk.responses.input_items.list(response["id"], limit=2, order=order)  # type: ignore[arg-type]
        assert "".join(item.content[0].text for item in pages) == expected  # type: ignore[union-attr]
    path = f"{RESPONSES}/{response['id']}/input_items"
    assert error(server.http.get(path, params={"after": "msg_x"}), 400)["param"] == "after"
    assert error(server.http.get(path, params={"limit": "0"}), 400)["param"] == "limit"


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


def test_a_background_response_is_read_when_it_is_done(server: RunningGateway, sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    assert created.status == "in_progress"
    assert eventually(lambda: sdk.responses.retrieve(created.id).status == "completed")
    assert sdk.responses.retrieve(created.id).output_text == "Hi."


def test_a_background_response_can_be_cancelled(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying("one two three", hold_after=2)
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    assert error(ask(server, previous_response_id=created.id), 400)["param"] == "previous_response_id"
    assert sdk.responses.cancel(created.id).status == "cancelled"
    assert sdk.responses.retrieve(created.id).status == "cancelled"
    assert eventually(lambda: not server.engine.running and not server.gateway.is_busy)


def test_deleting_a_background_response_ends_it(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying("one two three", hold_after=2)
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    sdk.responses.delete(created.id)
    assert eventually(lambda: not server.engine.running)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(created.id)


def test_a_background_response_that_fails_says_so(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying("one two", failure=EngineDied("gone"), failure_after=1)
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    assert eventually(lambda: sdk.responses.retrieve(created.id).status == "failed")
    failure = sdk.responses.retrieve(created.id).error
    assert failure is not None
    assert failure.code == "server_error"


def test_responses_belong_to_their_tenant(text_model: TextModel) -> None:
    keys = tuple(KeyConfig(key=key, tenant=tenant) for key, tenant in (("a1", "a"), ("a2", "a"), ("b", "b")))
    with running_gateway(text_model, keys=keys) as server, ExitStack() as clients:
        owner, colleague, other = (clients.enter_context(client_of(server, key)) for key in ("a1", "a2", "b"))
        mine = owner.responses.create(model=MODEL, input="Hello")
        assert colleague.responses.retrieve(mine.id) == mine
        for call in (
            other.responses.retrieve,
            other.responses.cancel,
            other.responses.delete,
            other.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError):
                call(mine.id)
        with pytest.raises(openai.BadRequestError):
            other.responses.create(model=MODEL, input="Hello", previous_response_id=mine.id)
        assert owner.responses.retrieve(mine.id) == mine
