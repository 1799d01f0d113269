"""`/v1/batches`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from gateway.batches.endpoints import ENDPOINTS
from gateway.batches.service import Batches
from gateway.body import read_json
from gateway.errors import invalid
from gateway.protocol.batches import BatchList, BatchRequest
from gateway.responses import json_response
from gateway.routes.files import caller_of, opened
from gateway.routes.paging import page_cursor, page_limit
from gateway.state import Gateway


def batch_routes(gateway: Gateway, batches: Batches | None) -> list[HTTPRouteHandler]:
    """Handlers of batches, which belong to the tenant of whoever made them."""
    decoder = msgspec.json.Decoder(BatchRequest)

    @post(["/v1/batches", "/batches"])
    async def create_batch(request: Request[Any, Any, Any]) -> ASGIResponse:
        body = await read_json(gateway, request, decoder)
        if body.endpoint not in ENDPOINTS:
            raise invalid(f"'endpoint' must be one of {', '.join(ENDPOINTS)}.", param="endpoint")
        return json_response(await opened(batches).create(body, caller_of(gateway, request)))

    @get(["/v1/batches", "/batches"])
    async def list_batches(request: Request[Any, Any, Any]) -> ASGIResponse:
        store = opened(batches).store
        limit = page_limit(request, default=20, most=100)
        found = await store.page(caller_of(gateway, request).tenant, after=page_cursor(request), limit=limit + 1)
        page = found[:limit]
        return json_response(
            BatchList(
                data=page,
                first_id=page[0].id if page else None,
                last_id=page[-1].id if page else None,
                has_more=len(found) > limit,
            )
        )

    @get(["/v1/batches/{batch_id:str}", "/batches/{batch_id:str}"])
    async def retrieve_batch(request: Request[Any, Any, Any]) -> ASGIResponse:
        return json_response(await opened(batches).store.get(_batch_id(request), caller_of(gateway, request).tenant))

    @post(["/v1/batches/{batch_id:str}/cancel", "/batches/{batch_id:str}/cancel"])
    async def cancel_batch(request: Request[Any, Any, Any]) -> ASGIResponse:
        return json_response(await opened(batches).cancel(_batch_id(request), caller_of(gateway, request).tenant))

    return [create_batch, list_batches, retrieve_batch, cancel_batch]


def _batch_id(request: Request[Any, Any, Any]) -> str:
    return str(request.path_params["batch_id"])
