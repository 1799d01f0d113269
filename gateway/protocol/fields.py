"""Bounded types and the parameters that both generation endpoints share.

`null` means absent everywhere; numbers are strict; every integer and every list has a bound.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

INT32 = 2**31 - 1
INT64 = 2**63 - 1
MAX_CHOICES = 128
MAX_STOPS = 4

Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT32)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=INT32)]
Seed = Annotated[int, msgspec.Meta(ge=-INT64 - 1, le=INT64)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=INT32)]
ShortText = Annotated[str, msgspec.Meta(max_length=1024)]
StopText = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Bias = Annotated[float, msgspec.Meta(ge=-100, le=100)]


class PromptTokenLogprob(msgspec.Struct, frozen=True):
    """One token at a place of the prompt; rank 1 is the most probable."""

    logprob: float
    rank: int
    decoded_token: str


PromptTokenLogprobs = list[dict[int, PromptTokenLogprob] | None]  # by token of a prompt: the best, by id, and itself


class StreamOptions(msgspec.Struct, kw_only=True):
    """`stream_options`."""

    include_usage: bool | None = None


class JsonSchemaFormat(msgspec.Struct, kw_only=True):
    """The schema of `response_format`; `strict` or not, every answer fits it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    schema: dict[str, Any] | bool
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """`structured_outputs`, of which exactly one field is given: a JSON Schema (also as text), and so on."""

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: Annotated[list[str], msgspec.Meta(min_length=1, max_length=16384)] | None = None
    grammar: str | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """What `/v1/chat/completions` and `/v1/completions` have in common.

    The second half are extras that OpenAI doesn't have but clients of other servers send. Fields that are only
    accepted (`user`, `store`, ...) are here for the check of their type.
    """

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    temperature: Temperature | None = None
    top_p: Share | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: StopText | Annotated[list[StopText], msgspec.Meta(max_length=MAX_STOPS)] | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[ShortText, Bias], msgspec.Meta(max_length=1024)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None

    top_k: Annotated[int, msgspec.Meta(ge=-1, le=INT32)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=10)] | None = None
    min_tokens: Count | None = None
    stop_token_ids: Annotated[list[TokenId], msgspec.Meta(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    bad_words: Annotated[list[StopText], msgspec.Meta(max_length=256)] | None = None
    allowed_token_ids: Annotated[list[TokenId], msgspec.Meta(min_length=1, max_length=1_000_000)] | None = None
    truncate_prompt_tokens: PositiveCount | None = None
    priority: Annotated[int, msgspec.Meta(ge=-INT32, le=INT32)] | None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    return_token_ids: bool | None = None
    prompt_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def stops(self) -> list[str]:
        """The stop strings, however they were written."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []
