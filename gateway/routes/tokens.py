"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.body import read_json
from gateway.errors import invalid
from gateway.prompts import chat_tokens
from gateway.protocol.chat import ChatRequest
from gateway.protocol.tokens import DetokenizeAnswer, DetokenizeRequest, TokenizeAnswer, TokenizeRequest
from gateway.responses import json_response
from gateway.sampling import check_token_ids
from gateway.served_model import Serving
from gateway.state import Gateway
from gateway.tools.choice import tool_use


def token_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that turn text into the model's tokens and back."""
    tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
    detokenize_decoder = msgspec.json.Decoder(DetokenizeRequest)

    @post(["/tokenize", "/v1/tokenize"])
    async def tokenize(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        body = await read_json(gateway, request, tokenize_decoder)
        serving = gateway.serving(body.model, None)
        tokens = await gateway.workers.run(lambda: _tokens(body, serving))
        return json_response(TokenizeAnswer(tokens=tokens, count=len(tokens), max_model_len=serving.info.max_model_len))

    @post(["/detokenize", "/v1/detokenize"])
    async def detokenize(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        body = await read_json(gateway, request, detokenize_decoder)
        serving = gateway.serving(body.model, None)
        return json_response(DetokenizeAnswer(prompt=await gateway.workers.run(lambda: _text(body, serving))))

    return [tokenize, detokenize]


def _tokens(body: TokenizeRequest, serving: Serving) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise invalid("Give either 'prompt' or 'messages'.", param="prompt" if body.messages is None else "messages")
    if body.messages is None:
        assert body.prompt is not None
        return serving.text_model.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)
    chat = ChatRequest(
        model=body.model or "",
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        chat_template=body.chat_template,
        chat_template_kwargs=body.chat_template_kwargs,
        tools=body.tools,
        tool_choice=body.tool_choice,
        reasoning_effort=body.reasoning_effort,
    )
    return chat_tokens(chat, tool_use(chat), serving.text_model)


def _text(body: DetokenizeRequest, serving: Serving) -> str:
    check_token_ids(body.tokens, "tokens", serving.text_model.vocab_size)
    return serving.text_model.decode(body.tokens, skip_special_tokens=False)
