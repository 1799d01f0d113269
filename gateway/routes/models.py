"""`/v1/models`, in OpenAI's form, or in Anthropic's for clients that send `anthropic-version`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from core_engine import EngineInfo
from gateway.errors import invalid
from gateway.messages_api.envelope import VERSION
from gateway.protocol.models import ModelCard, ModelInfo, ModelList, ModelPage
from gateway.responses import json_response
from gateway.routes.paging import page_limit
from gateway.served_model import ServedModel
from gateway.state import Gateway


def model_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers that list the served models and describe one; its name may hold slashes."""

    @get(["/v1/models", "/models"])
    async def list_models(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        # One whose engine is being restarted stays on the list: menus of clients shouldn't flicker.
        named = [(model, info, name) for model in gateway.models if (info := model.client.info) for name in model.names]
        if _wants_messages_form(request):
            return json_response(_page([_info(*one) for one in named], request))
        return json_response(ModelList(data=[_card(*one) for one in named]))

    @get(["/v1/models/{model_id:path}", "/models/{model_id:path}"])
    async def retrieve_model(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        name = str(request.path_params["model_id"]).removeprefix("/")
        info = gateway.serving(name, None).info
        describe = _info if _wants_messages_form(request) else _card
        return json_response(describe(gateway.model(name), info, name))

    return [list_models, retrieve_model]


def _wants_messages_form(request: Request[Any, Any, Any]) -> bool:
    return VERSION.decode() in request.headers


def _card(model: ServedModel, info: EngineInfo, name: str) -> ModelCard:
    return ModelCard(id=name, root=model.name, created=model.created, max_model_len=info.max_model_len)


def _info(model: ServedModel, info: EngineInfo, name: str) -> ModelInfo:
    return ModelInfo(
        id=name,
        display_name=name,
        created_at=datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        max_input_tokens=info.max_model_len,
        max_tokens=info.max_model_len,
    )


def _page(models: list[ModelInfo], request: Request[Any, Any, Any]) -> ModelPage:
    """The part that the query wants: `limit` models after `after_id`, or as many before `before_id`."""
    limit = page_limit(request, default=20, most=1000)
    ids = [model.id for model in models]
    for name in ("after_id", "before_id"):
        if (given := request.query_params.get(name)) is not None and given not in ids:
            raise invalid(f"'{name}' is '{given[:100]}', which is no model here.", param=name)
    start, end = 0, len(models)
    if (after := request.query_params.get("after_id")) is not None:
        start = ids.index(after) + 1
    if (before := request.query_params.get("before_id")) is not None:
        end = ids.index(before)
        page = models[max(start, end - limit) : end]
        has_more = end - limit > start
    else:
        page = models[start : start + limit]
        has_more = start + limit < end
    return ModelPage(
        data=page, first_id=page[0].id if page else None, last_id=page[-1].id if page else None, has_more=has_more
    )
