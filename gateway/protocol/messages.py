"""`/v1/messages`: the request with its turns, and the message that answers it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from gateway.protocol.fields import Count, PositiveCount, Share, StopText
from gateway.protocol.tools import MAX_TOOLS, ToolName

MAX_STOP_SEQUENCES = 64

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class InputBlock(msgspec.Struct, kw_only=True):
    """A piece of a turn; which fields it has depends on `type`."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[InputBlock] | None = None
    is_error: bool | None = None


class Turn(msgspec.Struct, kw_only=True):
    """What one side says."""

    role: str
    content: str | list[InputBlock]


class InputTool(msgspec.Struct, kw_only=True):
    """A tool; only those that the client itself runs can be served, which have no type or the type `custom`."""

    name: ToolName
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AutoTool(msgspec.Struct, kw_only=True, tag_field="type", tag="auto"):
    """The model decides whether to use tools."""

    disable_parallel_tool_use: bool | None = None


class AnyTool(msgspec.Struct, kw_only=True, tag_field="type", tag="any"):
    """It must use some."""

    disable_parallel_tool_use: bool | None = None


class OneTool(msgspec.Struct, kw_only=True, tag_field="type", tag="tool"):
    """It must use this one."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoTool(msgspec.Struct, kw_only=True, tag_field="type", tag="none"):
    """It must use none."""


class Thinking(msgspec.Struct, kw_only=True):
    """`thinking`: whether the model thinks first. Its `budget_tokens` are part of `max_tokens`, which bounds both."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: PositiveCount | None = None
    display: Literal["summarized"] | None = None


class OutputConfig(msgspec.Struct, kw_only=True):
    """`output_config`: the effort, and a schema that the answer shall follow."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class Conversation(msgspec.Struct, kw_only=True):
    """What makes the prompt of a message; all that `/v1/messages/count_tokens` takes."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    messages: Annotated[list[Turn], msgspec.Meta(min_length=1, max_length=16384)]
    system: str | list[InputBlock] | None = None
    tools: Annotated[list[InputTool], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: AutoTool | AnyTool | OneTool | NoTool | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    container: Any = None
    mcp_servers: Any = None


class Metadata(msgspec.Struct, kw_only=True):
    """`metadata`."""

    user_id: Annotated[str, msgspec.Meta(max_length=512)] | None = None


class MessageRequest(Conversation, kw_only=True):
    """The body of a request."""

    max_tokens: PositiveCount
    stop_sequences: Annotated[list[StopText], msgspec.Meta(max_length=MAX_STOP_SEQUENCES)] | None = None
    stream: bool | None = None
    temperature: Share | None = None
    top_k: Count | None = None
    top_p: Share | None = None
    metadata: Metadata | None = None


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """What the assistant says."""

    text: str = ""
    citations: None = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """What it thinks first. Nothing is signed here: the field is there because clients require it."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A tool that the client shall run."""

    id: str
    name: str
    input: dict[str, Any]


OutputBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts; those of the prompt are `input_tokens` and, where they needed no computation, the cached ones."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The answer as a whole, or what is known of it when it begins."""

    id: str
    role: str = "assistant"
    model: str
    content: list[OutputBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TokenCount(msgspec.Struct, frozen=True):
    """How long a prompt is."""

    input_tokens: int
