"""From the messages of a chat request to what a chat template takes."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.body import check_depth
from gateway.errors import ApiError, invalid
from gateway.protocol.chat import ChatMessage, ContentPart, ToolCall

_ROLES = ("system", "developer", "user", "assistant", "tool")

# What a request may hand to the template. Anything else could reach arguments of the tokenizer or of the renderer.
TEMPLATE_KWARGS = frozenset({"custom_instructions", "date_string", "enable_thinking", "reasoning_effort", "thinking"})

MAX_ARGUMENTS_DEPTH = 64  # as a body may have; arguments come in a string, past the check of that

_json = msgspec.json.Decoder()


def template_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages as plain dicts; raises a 400 for a role or content that can't be served."""
    return [_template_message(message, f"messages[{number}]") for number, message in enumerate(messages)]


def check_template_options(
    chat_template: Any,
    kwargs: dict[str, Any] | None,
    *,
    add_generation_prompt: bool | None,
    continue_final: bool | None,
) -> None:
    """Refuse a template of the request's own, arguments that aren't allowed, and contradicting options."""
    if chat_template is not None:
        raise invalid("'chat_template' can't be set: the model's own is used.", param="chat_template")
    for name, value in (kwargs or {}).items():
        if name not in TEMPLATE_KWARGS:
            allowed = ", ".join(sorted(TEMPLATE_KWARGS))
            raise invalid(
                f"'chat_template_kwargs' has '{name[:64]}', which a request may not set; it may set {allowed}.",
                param="chat_template_kwargs",
            )
        if not isinstance(value, str | int | float | bool | None):
            message = f"'{name}' in 'chat_template_kwargs' must be a string, a number or a boolean."
            raise invalid(message, param="chat_template_kwargs")
    if add_generation_prompt and continue_final:
        message = (
            "'continue_final_message' and 'add_generation_prompt' can't both be true: they end the prompt differently."
        )
        raise invalid(message, param="continue_final_message")


def _template_message(message: ChatMessage, where: str) -> dict[str, Any]:
    if message.role not in _ROLES:
        raise invalid(f"'{message.role[:64]}' is not a role: use one of {', '.join(_ROLES)}.", param=f"{where}.role")
    result: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _text(message, where),
    }
    if message.name is not None:
        result["name"] = message.name
    if message.role == "assistant" and message.reasoning_content is not None:
        result["reasoning_content"] = message.reasoning_content
    if message.role == "assistant" and message.tool_calls:
        result["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if message.role == "tool" and message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    return result


def _text(message: ChatMessage, where: str) -> str:
    if isinstance(message.content, str):
        return message.content
    if message.content is None:
        if message.role != "assistant":
            raise invalid(f"A message of the role '{message.role}' needs content.", param=f"{where}.content")
        return ""
    return "\n".join(_part(part, f"{where}.content[{number}]") for number, part in enumerate(message.content))


def _part(part: ContentPart, where: str) -> str:
    if part.type == "text" and part.text is not None:
        return part.text
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if part.type in {"text", "refusal"}:
        raise invalid(f"A content part of the type '{part.type}' needs the field '{part.type}'.", param=where)
    raise invalid(f"Content parts of the type '{part.type[:64]}' can't be served: this model reads text.", param=where)


def _template_call(call: ToolCall) -> dict[str, Any]:
    """Templates expect the arguments as an object, while the API carries them as a string.

    What is no object, or too deep for those who recurse through it, stays the string that it is.
    """
    arguments: Any = call.function.arguments or "{}"
    try:
        check_depth(arguments.encode(), MAX_ARGUMENTS_DEPTH)
        decoded = _json.decode(arguments)
    except (ApiError, msgspec.DecodeError):
        decoded = None
    if isinstance(decoded, dict):
        arguments = decoded
    function = {"name": call.function.name, "arguments": arguments}
    return {"type": "function", "id": call.id, "function": function}
