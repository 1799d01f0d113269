"""`/v1/models`."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A name of a served model; `root` is the model's own name, of which this may be an alias.

    `max_model_len` is what clients of other servers read the context length from.
    """

    id: str
    object: str = "model"
    created: int
    max_model_len: int
    owned_by: str = "jitney"
    root: str


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Every served model."""

    object: str = "list"
    data: list[ModelCard]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="model"):
    """The same in Anthropic's form; `created_at` is a time as RFC 3339 has it."""

    id: str
    display_name: str
    created_at: str
    max_input_tokens: int
    max_tokens: int
    lifecycle: str = "active"
    deprecated_at: None = None
    retires_at: None = None
    line: None = None
    capabilities: None = None


class ModelPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the served models, in Anthropic's form."""

    data: list[ModelInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool
