"""`/v1/embeddings`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.body import read_json
from gateway.embeddings import embed
from gateway.protocol.embeddings import EmbeddingRequest
from gateway.state import Gateway


def embedding_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """The handler, also at the path without /v1."""
    decoder = msgspec.json.Decoder(EmbeddingRequest)

    @post(["/v1/embeddings", "/embeddings"])
    async def create_embeddings(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        fields = await read_json(gateway, request, decoder)
        return await embed(gateway, fields, request)

    return [create_embeddings]
