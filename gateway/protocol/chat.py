"""`/v1/chat/completions`: the request, the answer and the chunks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.protocol.fields import Count, GenerationFields, PositiveCount, PromptTokenLogprobs
from gateway.protocol.tools import MAX_TOOLS, Tool, ToolChoice
from gateway.protocol.usage import Usage

FinishReason = Literal["stop", "length", "tool_calls"]


class ContentPart(msgspec.Struct, kw_only=True):
    """A piece of a message; only text is understood."""

    type: str
    text: str | None = None
    refusal: str | None = None


class Function(msgspec.Struct, kw_only=True):
    """The function of a tool call; the arguments are JSON in a string, if the model got them right."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, kw_only=True):
    """A tool call, in the history or in an answer."""

    id: str | None = None
    type: str = "function"
    function: Function


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message of any role; which fields a role may have is checked by `gateway.messages`."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None


class ChatRequest(GenerationFields, kw_only=True):
    """The body of a request."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=16384)]
    max_tokens: PositiveCount | None = None
    max_completion_tokens: PositiveCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Annotated[list[Tool], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    reasoning_effort: str | None = None
    store: bool | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    @property
    def output_limit(self) -> tuple[Count | None, str]:
        """The caller's bound on new tokens and the name of the field that gave it; the newer one wins."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that might have been sampled."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """A sampled token with its rivals, best first."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    """The log-probabilities of one choice, or of one chunk of it."""

    content: list[TokenLogprob]
    refusal: None = None


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the assistant said."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: FinishReason
    logprobs: ChoiceLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer as a whole."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptTokenLogprobs | UnsetType = UNSET


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the function of a call."""

    name: str | UnsetType = UNSET
    arguments: str


class CallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a call; id, type and name come with the first."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionDelta


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one answer."""

    index: int
    delta: Delta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream. `usage` is null until the last chunk where it was asked for, else absent."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
