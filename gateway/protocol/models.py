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
