"""Asking `/v1/responses` and believing nothing: every answer and event must be of the SDK's types."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
from openai.types import responses as sdk_types
from pydantic import TypeAdapter

from tests.gateway.running import RunningGateway
from tests.support.plain_http import openai_client

RESPONSES = "/v1/responses"
EVENTS: TypeAdapter[Any] = TypeAdapter(sdk_types.ResponseStreamEvent)


def client_of(server: RunningGateway, key: str = "none") -> openai.OpenAI:
    return openai_client(server.url, key)


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
