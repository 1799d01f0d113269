"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gateway.protocol.chat import ChatMessage
from gateway.protocol.fields import TokenId
from gateway.protocol.tools import MAX_TOOLS, Tool, ToolChoice


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Either `prompt`, or `messages` with what else of a chat goes into its prompt."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=16384)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Annotated[list[Tool], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    reasoning_effort: str | None = None


class TokenizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ids, how many there are, and how many the model takes."""

    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Token ids."""

    tokens: list[TokenId]
    model: str | None = None


class DetokenizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Their text, special tokens included."""

    prompt: str
