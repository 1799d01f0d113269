"""Tools, calls of them as a model writes them, and the message that an answer should have."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.running import RunningGateway

PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Of a town.", "parameters": PARAMETERS}}
TIME = {"type": "function", "function": {"name": "time"}}
TOOLS = [WEATHER, TIME]
OSLO = '<tool_call>\n{"name": "weather", "arguments": {"town": "Oslo"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'


def prompt_of(server: RunningGateway) -> str:
    return server.text_model.decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


def message_of(server: RunningGateway, text: str, **fields: Any) -> dict[str, Any]:
    """The message of an answer in which the model writes this."""
    return choice_of(server, text, **fields)["message"]


def choice_of(server: RunningGateway, text: str, **fields: Any) -> dict[str, Any]:
    server.engine.script = server.saying(text)
    response = server.chat(**{"tools": TOOLS, **fields})
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return choice


def functions(message: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]
