"""`/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.body import read_json
from gateway.chat import ChatOperation
from gateway.completions import CompletionOperation
from gateway.protocol.chat import ChatRequest
from gateway.protocol.completions import CompletionRequest
from gateway.serving import respond
from gateway.state import Gateway


def generation_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers of both endpoints, each also at the path without /v1 that many clients use."""
    chat_decoder = msgspec.json.Decoder(ChatRequest)
    completion_decoder = msgspec.json.Decoder(CompletionRequest)

    @post(["/v1/chat/completions", "/chat/completions"])
    async def create_chat_completion(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        fields = await read_json(gateway, request, chat_decoder)
        return await respond(gateway, ChatOperation(fields), request)

    @post(["/v1/completions", "/completions"])
    async def create_completion(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        fields = await read_json(gateway, request, completion_decoder)
        return await respond(gateway, CompletionOperation(fields), request)

    return [create_chat_completion, create_completion]
