"""From the turns of a conversation to the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from gateway.errors import ApiError, invalid
from gateway.protocol.chat import ChatMessage, ContentPart, Function, ToolCall
from gateway.protocol.messages import InputBlock, Turn

_ROLES = ("user", "assistant", "system")


@dataclass(slots=True)
class _Draft:
    """A message of a chat while its blocks are gathered."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    tool_use_id: str | None = None

    def message(self) -> ChatMessage:
        return ChatMessage(
            role=self.role,
            content=[ContentPart(type="text", text=text) for text in self.texts] or None,
            reasoning_content="\n".join(self.thoughts) if self.thoughts else None,
            tool_calls=self.calls or None,
            tool_call_id=self.tool_use_id,
        )


def chat_messages(turns: list[Turn]) -> list[ChatMessage]:
    """The turns as a chat has them: what one side says in a row is one message, each result of a tool one of its own.

    Raises a 400 that names the block for what can't be served, and for an end that leaves nothing to answer.
    """
    drafts: list[_Draft] = []
    for number, turn in enumerate(turns):
        where = f"messages[{number}]"
        if turn.role not in _ROLES:
            message = f"'{turn.role[:64]}' is not a role: use one of {', '.join(_ROLES)}."
            raise invalid(message, param=f"{where}.role")
        for block, place in _blocks(turn.content, f"{where}.content"):
            _add(drafts, turn.role, block, place)
    last = drafts[-1] if drafts else _Draft("assistant")
    if last.role == "assistant" and (last.calls or not last.texts):
        message = "The end of 'messages' leaves nothing to answer: it may be text, or the results of tools."
        raise invalid(message, param="messages")
    return [draft.message() for draft in drafts]


def text_of(content: str | list[InputBlock], where: str) -> str:
    """The text of content that may have nothing else; raises a 400 that names the block where it has."""
    return "\n".join(_text(block, place) for block, place in _blocks(content, where))


def _blocks(content: str | list[InputBlock], where: str) -> Iterator[tuple[InputBlock, str]]:
    """The blocks with their places."""
    if isinstance(content, str):
        yield InputBlock(type="text", text=content), where
        return
    for number, block in enumerate(content):
        yield block, f"{where}[{number}]"


def _add(drafts: list[_Draft], role: str, block: InputBlock, where: str) -> None:
    match role, block.type:
        case "user", "tool_result":
            tool_use_id = _given(block.tool_use_id, f"{where}.tool_use_id")
            result = text_of(block.content or "", f"{where}.content")
            # A chat has no other way to say that a tool failed.
            drafts.append(_Draft("tool", [f"Error: {result}" if block.is_error else result], tool_use_id=tool_use_id))
        case "assistant", "tool_use":
            name, tool_use_id = _given(block.name, f"{where}.name"), _given(block.id, f"{where}.id")
            arguments = msgspec.json.encode({} if block.input is None else block.input).decode()
            call = ToolCall(id=tool_use_id, function=Function(name=name, arguments=arguments))
            _current(drafts, role).calls.append(call)
        case "assistant", "thinking":
            _current(drafts, role).thoughts.append(_given(block.thinking, f"{where}.thinking"))
        case "assistant", "redacted_thinking":
            pass  # a conversation that began elsewhere; only there it can be read
        case _:
            _current(drafts, role).texts.append(_text(block, where))


def _current(drafts: list[_Draft], role: str) -> _Draft:
    """The message of whoever speaks."""
    if not drafts or drafts[-1].role != role:
        drafts.append(_Draft(role))
    return drafts[-1]


def _text(block: InputBlock, where: str) -> str:
    if block.type != "text":
        message = f"A block of the type '{block.type[:64]}' can't be served here: this model reads text."
        raise invalid(message, param=f"{where}.type")
    return _given(block.text, f"{where}.text")


def _given(value: str | None, where: str) -> str:
    if value is None:
        raise _missing(where)
    return value


def _missing(where: str) -> ApiError:
    return invalid(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
