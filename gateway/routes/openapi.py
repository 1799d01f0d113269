"""`/openapi.json` and `/docs`: the API's own description, for programs and for people."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.openapi.document import document
from gateway.openapi.page import HEADERS, page
from gateway.responses import json_response
from gateway.state import Gateway


def openapi_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers of the document and of the page; the admin API is in them where the server has it."""
    with_admin = gateway.settings.admin_key is not None

    @get("/openapi.json")
    async def openapi() -> ASGIResponse:
        return json_response(document(with_admin=with_admin))

    @get("/docs")
    async def docs() -> ASGIResponse:
        return ASGIResponse(body=page(with_admin=with_admin), media_type="text/html", headers=HEADERS)

    return [openapi, docs]
