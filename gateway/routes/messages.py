"""`/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.body import read_json
from gateway.messages_api.operation import MessageOperation, count_tokens
from gateway.protocol.messages import Conversation, MessageRequest, TokenCount
from gateway.responses import json_response
from gateway.serving import respond
from gateway.state import Gateway


def message_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that make messages, and count the tokens of their prompts."""
    message_decoder = msgspec.json.Decoder(MessageRequest)
    conversation_decoder = msgspec.json.Decoder(Conversation)

    @post(["/v1/messages", "/messages"])
    async def create_message(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        fields = await read_json(gateway, request, message_decoder)
        request_id = request.headers["x-request-id"]
        operation = await gateway.workers.run(lambda: MessageOperation(fields, request_id))
        return await respond(gateway, operation, request)

    @post(["/v1/messages/count_tokens", "/messages/count_tokens"])
    async def count_message_tokens(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        fields = await read_json(gateway, request, conversation_decoder)
        serving = gateway.serving(fields.model)
        return json_response(TokenCount(await gateway.workers.run(lambda: count_tokens(fields, serving))))

    return [create_message, count_message_tokens]
