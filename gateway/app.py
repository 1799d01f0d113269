"""The ASGI application: Litestar with our routes and errors, behind the edge."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request, Response
from litestar.config.app import AppConfig
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.plugins import InitPluginProtocol
from litestar.types import ASGIApp

from gateway.auth import KEYLESS_PATHS, ApiKeys
from gateway.batches.service import Batches
from gateway.edge import Edge
from gateway.errors import ClientDisconnected, report
from gateway.loading import ModelLoader
from gateway.messages_api.envelope import in_form, wants_messages_form
from gateway.responses_api.service import Responses
from gateway.routes.admin import admin_routes
from gateway.routes.admin_models import admin_model_routes
from gateway.routes.batches import batch_routes
from gateway.routes.embeddings import embedding_routes
from gateway.routes.files import file_routes
from gateway.routes.generate import generation_routes
from gateway.routes.health import health_routes
from gateway.routes.messages import message_routes
from gateway.routes.models import model_routes
from gateway.routes.openapi import openapi_routes
from gateway.routes.responses import response_routes
from gateway.routes.tokens import token_routes
from gateway.state import Gateway


class GatewayPlugin(InitPluginProtocol):
    """Everything that makes a Litestar application ours."""

    def __init__(self, gateway: Gateway, loader: ModelLoader, responses: Responses, batches: Batches | None) -> None:
        self._gateway = gateway
        self._loader = loader
        self._responses = responses
        self._batches = batches

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add routes, and one handler for every exception."""
        gateway = self._gateway
        app_config.route_handlers += [
            *generation_routes(gateway),
            *embedding_routes(gateway),
            *response_routes(gateway, self._responses),
            *message_routes(gateway),
            *model_routes(gateway),
            *token_routes(gateway),
            *file_routes(gateway, self._batches),
            *batch_routes(gateway, self._batches),
            *health_routes(gateway),
            *openapi_routes(gateway),
            *(self._admin_routes() if gateway.settings.admin_key else ()),
        ]
        app_config.exception_handlers = {Exception: _answer_error, HTTPException: _answer_error}
        app_config.openapi_config = None
        app_config.logging_config = None
        app_config.request_max_body_size = None  # bodies are read and bounded by gateway.body
        return app_config

    def _admin_routes(self) -> list[HTTPRouteHandler]:
        return [*admin_routes(self._gateway), *admin_model_routes(self._gateway, self._loader)]


def build_app(gateway: Gateway, loader: ModelLoader, responses: Responses, batches: Batches | None) -> ASGIApp:
    """The whole application, to be served by any ASGI server; without `batches`, files and batches are a 503."""
    settings = gateway.settings
    open_paths = KEYLESS_PATHS | ({"/metrics"} if settings.public_metrics else set())
    keys = ApiKeys(
        tuple(key.key for key in settings.keys),
        admin_key=settings.admin_key,
        keyless_paths=open_paths,
    )
    return Edge(Litestar(plugins=[GatewayPlugin(gateway, loader, responses, batches)]), settings, keys)


def _answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    if isinstance(error, ClientDisconnected):
        return Response(b"", status_code=499)  # nobody reads it; the server wants some answer
    answer = report(error)
    messages_form = wants_messages_form(request.scope["path"], dict(request.scope["headers"]))
    status, body = in_form(answer, request.headers["x-request-id"], messages_form=messages_form)
    return Response(body, status_code=status, headers=answer.headers(), media_type="application/json")
