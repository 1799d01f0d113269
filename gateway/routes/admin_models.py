"""`/admin/models`: what is loaded, and models that come and go while others serve."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from core_engine import Kind
from gateway.body import read_json
from gateway.loading import ModelLoader
from gateway.responses import json_response
from gateway.served_model import ServedModel
from gateway.state import Gateway


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is; what its engine says of itself is null until it is ready for the first time."""

    name: str
    aliases: list[str]
    model: str  # what it was loaded from
    task: Kind
    state: str
    failure: str | None
    engine_pid: int | None
    created: int
    architecture: str | None = None
    dtype: str | None = None
    device: str | None = None
    max_model_len: int | None = None
    num_blocks: int | None = None
    block_size: int | None = None


class ModelReports(msgspec.Struct, frozen=True):
    """Every model, in the order they were loaded."""

    models: list[ModelReport]


class Unloaded(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is gone."""

    name: str
    deleted: bool = True


def admin_model_routes(gateway: Gateway, loader: ModelLoader) -> list[HTTPRouteHandler]:
    """Handlers behind the admin key."""
    decoder = msgspec.json.Decoder(dict[str, Any])

    @get("/admin/models")
    async def show_models() -> ASGIResponse:
        return json_response(ModelReports([_report(model) for model in gateway.models]))

    @post("/admin/models")
    async def load_model(request: Request[Any, Any, Any]) -> ASGIResponse:
        table = await read_json(gateway, request, decoder)
        model = await loader.load(table)
        return json_response(_report(model), status=201)

    @delete("/admin/models/{name:path}", status_code=200)
    async def unload_model(request: Request[Any, Any, Any]) -> ASGIResponse:
        model = gateway.model(str(request.path_params["name"]).removeprefix("/"))
        await loader.unload(model)
        return json_response(Unloaded(name=model.name))

    return [show_models, load_model, unload_model]


def _report(model: ServedModel) -> ModelReport:
    info = model.client.info
    known = {} if info is None else {name: getattr(info, name) for name in _OF_ENGINE}
    return ModelReport(
        name=model.name,
        aliases=list(model.names[1:]),
        model=model.source,
        task=model.kind,
        state=model.state,
        failure=model.client.failure,
        engine_pid=model.client.engine_pid,
        created=model.created,
        **known,
    )


_OF_ENGINE = ("architecture", "dtype", "device", "max_model_len", "num_blocks", "block_size")
