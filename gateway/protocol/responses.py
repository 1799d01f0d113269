"""`/v1/responses`: the request with its input items, and the response with its output items."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from gateway.protocol.chat import TokenLogprob
from gateway.protocol.fields import GenerationFields, PositiveCount
from gateway.protocol.tools import MAX_TOOLS, ToolName

ResponseId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
MetadataKey = Annotated[str, msgspec.Meta(max_length=64)]
MetadataValue = Annotated[str, msgspec.Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], msgspec.Meta(max_length=16)]
Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class InputPart(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A piece of an input item; only text is understood."""

    type: str
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None


class InputItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message, a call of a function, its output or a reasoning; which it is says `type`, a message where absent."""

    type: str | None = None
    id: str | None = None
    status: str | None = None
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    summary: list[InputPart] | None = None


class FlatTool(msgspec.Struct, kw_only=True):
    """A tool, with its function's fields beside its type."""

    type: str
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FlatNamedTool(msgspec.Struct, kw_only=True, tag_field="type", tag="function"):
    """One function by its name."""

    name: str


class FlatAllowedTools(msgspec.Struct, kw_only=True, tag_field="type", tag="allowed_tools"):
    """Some of the tools, to be used or not."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[FlatNamedTool], msgspec.Meta(min_length=1, max_length=MAX_TOOLS)]


FlatToolChoice = Literal["none", "auto", "required"] | FlatNamedTool | FlatAllowedTools


class TextOptions(msgspec.Struct, kw_only=True):
    """`text`: which form the answer shall have."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningOptions(msgspec.Struct, kw_only=True):
    """`reasoning`."""

    effort: str | None = None
    summary: str | None = None


class ResponseRequest(GenerationFields, kw_only=True):
    """The body of a request. Sampling extras are those of chat completions."""

    input: str | Annotated[list[InputItem], msgspec.Meta(min_length=1, max_length=16384)]
    instructions: str | None = None
    previous_response_id: ResponseId | None = None
    store: bool | None = None
    background: bool | None = None
    max_output_tokens: PositiveCount | None = None
    max_tool_calls: PositiveCount | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: Annotated[list[FlatTool], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: FlatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    include: Annotated[list[str], msgspec.Meta(max_length=64)] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    metadata: Metadata | None = None
    truncation: Literal["auto", "disabled"] | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class OutputText(msgspec.Struct, tag_field="type", tag="output_text", kw_only=True):
    """The text of a message; `logprobs` only where they were asked for."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """The text of a reasoning."""

    text: str = ""


class OutputMessage(msgspec.Struct, tag_field="type", tag="message", kw_only=True):
    """What the assistant says."""

    id: str
    status: Status = "in_progress"
    role: str = "assistant"
    content: list[OutputText] = []


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call", kw_only=True):
    """A function that the client shall call."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: Status = "in_progress"


class Reasoning(msgspec.Struct, tag_field="type", tag="reasoning", kw_only=True):
    """What the assistant thinks first."""

    id: str
    summary: list[Any] = []
    content: list[ReasoningText] = []
    status: Status = "in_progress"


OutputItem = OutputMessage | FunctionCall | Reasoning


class InputDetails(msgspec.Struct, frozen=True):
    """How much of the input needed no computation."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True):
    """How much of the output was reasoning."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response is incomplete."""

    reason: str


class Response(msgspec.Struct, kw_only=True):
    """A response in any state; most of its fields say what was asked for."""

    id: str
    object: str = "response"
    created_at: int
    status: Status = "in_progress"
    background: bool = False
    completed_at: int | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] = {}
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: dict[str, str | None] = {}
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: FlatToolChoice = "auto"
    tools: list[FlatTool] = []
    top_logprobs: int = 0
    top_p: float
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of input items."""

    object: str = "list"
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(msgspec.Struct, frozen=True):
    """That a response is gone."""

    id: str
    object: str = "response"
    deleted: bool = True
