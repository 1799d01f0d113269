"""Asking `/v1/messages` and believing nothing: every answer and event must be of the SDK's types."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
from anthropic import types as sdk_types
from pydantic import TypeAdapter

from tests.gateway.fake_engine import MODEL
from tests.gateway.running import RunningGateway
from tests.support.plain_http import NO_CERTIFICATES

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
EVENTS: TypeAdapter[Any] = TypeAdapter(sdk_types.RawMessageStreamEvent)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = """Let me see.<tool_call>
{"name": "weather", "arguments": {"city": "Bern"}}
</tool_call>"""
TWO_CALLS = f"{CALL}\n{CALL.removeprefix('Let me see.')}"


def client_of(server: RunningGateway, key: str = "none") -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(trust_env=False, verify=NO_CERTIFICATES)
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, http_client=http)


def asked(**fields: Any) -> dict[str, Any]:
    """The arguments of the SDK's methods."""
    return {"model": MODEL, "max_tokens": 500, "messages": HELLO, **fields}


def ask(server: RunningGateway, **fields: Any) -> httpx.Response:
    return server.http.post(MESSAGES, json=asked(**fields))


def message(server: RunningGateway, **fields: Any) -> dict[str, Any]:
    """A whole message, strictly of the SDK's type."""
    answer = ask(server, **fields)
    assert answer.status_code == 200, answer.text
    sdk_types.Message.model_validate_json(answer.text, strict=True)
    body: dict[str, Any] = answer.json()
    return body


def events_of(server: RunningGateway, **fields: Any) -> list[dict[str, Any]]:
    """All events of a stream but pings, each strictly of its type in the SDK and named as it is typed."""
    answer = ask(server, stream=True, **fields)
    assert answer.headers["content-type"] == "text/event-stream"
    events = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] not in {"ping", "error"}:
            EVENTS.validate_json(data.removeprefix("data: "), strict=True)
        if event["type"] != "ping":
            events.append(event)
    return events


def streamed(server: RunningGateway, **fields: Any) -> dict[str, Any]:
    """What the SDK makes of a stream."""
    with client_of(server) as client, client.messages.stream(**asked(**fields)) as stream:
        final = stream.get_final_message()
    body: dict[str, Any] = json.loads(final.to_json())
    return body


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body.keys() == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    envelope: dict[str, Any] = body["error"]
    assert envelope.keys() == {"type", "message"}
    return envelope
