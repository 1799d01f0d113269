"""`/v1/models`."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served model; `max_model_len` is what clients of other servers read the context length from."""

    id: str
    object: str = "model"
    created: int
    max_model_len: int
    owned_by: str = "jitney"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Every served model."""

    object: str = "list"
    data: list[ModelCard]
