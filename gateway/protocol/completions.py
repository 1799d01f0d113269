"""`/v1/completions`: the legacy request, and the answer that serves as its own chunk."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.protocol.fields import MAX_CHOICES, Count, GenerationFields, PromptTokenLogprobs, TokenId
from gateway.protocol.usage import Usage

MAX_PROMPTS = 512


class CompletionRequest(GenerationFields, kw_only=True):
    """The body of a request; `prompt` is a string, strings, token ids or lists of token ids."""

    prompt: str | Annotated[list[str | TokenId | list[TokenId]], msgspec.Meta(min_length=1)]
    max_tokens: Count | None = None
    best_of: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=5)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None


class LegacyLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry a token; `text_offset` counts characters of the choice's text.

    The first token of an echoed prompt has no log-probability.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One completion, or a piece of it."""

    index: int
    text: str
    logprobs: LegacyLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptTokenLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer or a chunk. `usage` of a chunk is null until the last where it was asked for, else absent."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
