"""Items of a response's input: in one form, and as the messages of a chat."""

from __future__ import annotations

import uuid

from gateway.errors import ApiError, invalid
from gateway.protocol.chat import ChatMessage, Function, ToolCall
from gateway.protocol.responses import InputItem, InputPart

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text")
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_CALL_FIELDS = {"function_call": ("call_id", "name", "arguments"), "function_call_output": ("call_id", "output")}


def item_id(kind: str) -> str:
    """An id for a new item of this type."""
    return f"{_PREFIXES[kind]}_{uuid.uuid4().hex}"


def given_items(given: str | list[InputItem]) -> list[InputItem]:
    """The input in the form in which items are listed: with type and id, content as parts.

    Raises a 400 that names the item for what can't be served.
    """
    if isinstance(given, str):
        given = [InputItem(role="user", content=given)]
    return [_checked(item, f"input[{number}]") for number, item in enumerate(given)]


def _checked(item: InputItem, where: str) -> InputItem:
    kind = item.type or "message"
    if kind not in _PREFIXES:
        kinds = ", ".join(_PREFIXES)
        raise invalid(f"Items of the type '{kind[:64]}' can't be served here: use {kinds}.", param=f"{where}.type")
    for name in _CALL_FIELDS.get(kind, ()):
        if getattr(item, name) is None:
            raise _missing(f"{where}.{name}")
    parts = InputItem(type=kind, id=item.id or item_id(kind), status=item.status or "completed")
    match kind:
        case "message":
            if item.role not in _ROLES:
                message = f"The 'role' of a message must be one of {', '.join(_ROLES)}."
                raise invalid(message, param=f"{where}.role")
            parts.role = item.role
            parts.content = _parts(item.content, item.role, f"{where}.content")
        case "function_call":
            parts.call_id, parts.name, parts.arguments = item.call_id, item.name, item.arguments
        case "function_call_output":
            assert item.output is not None
            parts.call_id = item.call_id
            parts.output = item.output
            if not isinstance(item.output, str):
                parts.output = _parts(item.output, "user", f"{where}.output")
        case "reasoning":
            parts.summary, parts.content = item.summary or [], item.content
    return parts


def _parts(content: str | list[InputPart] | None, role: str, where: str) -> list[InputPart]:
    if content is None:
        raise _missing(where)
    if isinstance(content, str):
        content = [InputPart(type="output_text" if role == "assistant" else "input_text", text=content)]
    for number, part in enumerate(content):
        if part.type not in (*_TEXT_PARTS, "refusal"):
            message = f"Content of the type '{part.type[:64]}' can't be served: this model reads text."
            raise invalid(message, param=f"{where}[{number}].type")
        if (part.refusal if part.type == "refusal" else part.text) is None:
            raise _missing(f"{where}[{number}].{'refusal' if part.type == 'refusal' else 'text'}")
        if part.type == "output_text":
            part.annotations = part.annotations or []
    return content


def _missing(where: str) -> ApiError:
    return invalid(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")


def chat_messages(items: list[InputItem]) -> list[ChatMessage]:
    """The items as a chat has them: what the assistant thinks, says and calls one after the other is one message."""
    messages: list[ChatMessage] = []
    for item in items:
        match item.type:
            case "message":
                assert item.role is not None
                last = messages[-1] if messages else None
                if item.role == "assistant" and last is not None and last.role == "assistant" and last.content is None:
                    last.content = _text(item.content)
                else:
                    messages.append(ChatMessage(role=item.role, content=_text(item.content)))
            case "reasoning":
                messages.append(ChatMessage(role="assistant", reasoning_content=_text(item.content)))
            case "function_call":
                assert item.name is not None
                if not messages or messages[-1].role != "assistant":
                    messages.append(ChatMessage(role="assistant"))
                function = Function(name=item.name, arguments=item.arguments or "")
                call = ToolCall(id=item.call_id, function=function)
                messages[-1].tool_calls = [*(messages[-1].tool_calls or ()), call]
            case "function_call_output":
                messages.append(ChatMessage(role="tool", tool_call_id=item.call_id, content=_text(item.output)))
    return messages


def _text(content: str | list[InputPart] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part.text or part.refusal or "" for part in content)
    return content or ""
