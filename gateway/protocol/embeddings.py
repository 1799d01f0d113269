"""`/v1/embeddings`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.protocol.fields import PositiveCount, TokenId

MAX_INPUTS = 2048

Texts = Annotated[list[str | TokenId | list[TokenId]], msgspec.Meta(min_length=1, max_length=1_000_000)]


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """Texts, or token ids, to embed."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    input: str | Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveCount | None = None
    user: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-(2**31) + 1, le=2**31 - 1)] | None = None


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """One vector: numbers, or little-endian float32 in base64."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A vector for each input, in their order."""

    object: str = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
