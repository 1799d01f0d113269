"""`/v1/models`."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.protocol.models import ModelCard, ModelList
from gateway.responses import json_response
from gateway.state import Gateway


def model_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that list the served model and describe it; its name may hold slashes."""

    def card() -> ModelCard:
        info = gateway.serving().info
        return ModelCard(id=info.model, created=gateway.created, max_model_len=info.max_model_len)

    @get(["/v1/models", "/models"])
    async def list_models() -> ASGIResponse:
        return json_response(ModelList(data=[card()]))

    @get(["/v1/models/{model_id:path}", "/models/{model_id:path}"])
    async def retrieve_model(model_id: str) -> ASGIResponse:
        gateway.serving().require_model(model_id.removeprefix("/"))
        return json_response(card())

    return [list_models, retrieve_model]
