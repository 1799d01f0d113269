"""`/v1/files`."""

from __future__ import annotations

from typing import Any

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.response import File
from litestar.response.base import ASGIResponse

from core_engine import Caller
from gateway.auth import api_key
from gateway.batches.service import Batches
from gateway.errors import ApiError, invalid
from gateway.protocol.files import FileDeleted, FileList
from gateway.responses import json_response
from gateway.routes.paging import page_cursor, page_limit
from gateway.state import Gateway

MAX_PAGE = 10_000


def opened(batches: Batches | None) -> Batches:
    """What is kept; raises a 503 where this server keeps nothing."""
    if batches is None:
        message = "Files and batches are served by another server, which uses the same data directory (--data-dir)."
        raise ApiError(503, message, code="data_directory_in_use", should_retry=False)
    return batches


def caller_of(gateway: Gateway, request: Request[Any, Any, Any]) -> Caller:
    """Whose request it is."""
    headers = dict(request.headers)
    return gateway.callers.identify(headers, api_key(headers))


def file_routes(gateway: Gateway, batches: Batches | None) -> list[HTTPRouteHandler]:
    """Handlers of files, which belong to the tenant of whoever sent them."""

    @post(["/v1/files", "/files"])
    async def upload_file(request: Request[Any, Any, Any]) -> ASGIResponse:
        files = opened(batches).files
        return json_response(
            await files.receive(request.scope["headers"], request.receive, caller_of(gateway, request).tenant)
        )

    @get(["/v1/files", "/files"])
    async def list_files(request: Request[Any, Any, Any]) -> ASGIResponse:
        files = opened(batches).files
        limit = page_limit(request, default=MAX_PAGE, most=MAX_PAGE)
        order = request.query_params.get("order", "desc")
        if order not in {"asc", "desc"}:
            raise invalid("'order' must be 'asc' or 'desc'.", param="order")
        found = await files.page(
            caller_of(gateway, request).tenant,
            after=page_cursor(request),
            limit=limit + 1,
            descending=order == "desc",
            purpose=request.query_params.get("purpose"),
        )
        page = found[:limit]
        return json_response(
            FileList(
                data=page,
                first_id=page[0].id if page else None,
                last_id=page[-1].id if page else None,
                has_more=len(found) > limit,
            )
        )

    @get(["/v1/files/{file_id:str}", "/files/{file_id:str}"])
    async def retrieve_file(request: Request[Any, Any, Any]) -> ASGIResponse:
        return json_response(await opened(batches).files.get(_file_id(request), caller_of(gateway, request).tenant))

    @get(["/v1/files/{file_id:str}/content", "/files/{file_id:str}/content"])
    async def download_file(request: Request[Any, Any, Any]) -> File:
        files = opened(batches).files
        file = await files.get(_file_id(request), caller_of(gateway, request).tenant)
        return File(files.path(file.id), filename=file.filename, media_type="application/octet-stream")

    @delete(["/v1/files/{file_id:str}", "/files/{file_id:str}"], status_code=200)
    async def delete_file(request: Request[Any, Any, Any]) -> ASGIResponse:
        await opened(batches).files.delete(_file_id(request), caller_of(gateway, request).tenant)
        return json_response(FileDeleted(_file_id(request)))

    return [upload_file, list_files, retrieve_file, download_file, delete_file]


def _file_id(request: Request[Any, Any, Any]) -> str:
    return str(request.path_params["file_id"])
