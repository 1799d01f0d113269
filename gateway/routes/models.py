"""`/v1/models`."""

from __future__ import annotations

from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from core_engine import EngineInfo
from gateway.protocol.models import ModelCard, ModelList
from gateway.responses import json_response
from gateway.served_model import ServedModel
from gateway.state import Gateway


def model_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that list the served models and describe one; its name may hold slashes."""

    @get(["/v1/models", "/models"])
    async def list_models() -> ASGIResponse:
        gateway.require_open()
        # One whose engine is being restarted stays on the list: menus of clients shouldn't flicker.
        cards = [
            _card(model, info, name) for model in gateway.models if (info := model.client.info) for name in model.names
        ]
        return json_response(ModelList(data=cards))

    @get(["/v1/models/{model_id:path}", "/models/{model_id:path}"])
    async def retrieve_model(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        name = str(request.path_params["model_id"]).removeprefix("/")
        info = gateway.serving(name, None).info
        return json_response(_card(gateway.model(name), info, name))

    return [list_models, retrieve_model]


def _card(model: ServedModel, info: EngineInfo, name: str) -> ModelCard:
    return ModelCard(id=name, root=model.name, created=model.created, max_model_len=info.max_model_len)
