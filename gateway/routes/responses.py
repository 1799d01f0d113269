"""`/v1/responses`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse
from msgspec import UNSET, UnsetType

from core_engine import checked
from gateway.body import read_json
from gateway.disconnect import unless_disconnected
from gateway.errors import ApiError, invalid
from gateway.protocol.responses import Deleted, InputItem, ItemList, ResponseRequest
from gateway.responses import json_response
from gateway.responses_api.operation import response_operation
from gateway.responses_api.service import Responses
from gateway.responses_api.store import Kept
from gateway.serving import Exchange, caller_of, respond
from gateway.state import Gateway

_PATHS = ["/v1/responses", "/responses"]
_PATHS_OF_ONE = [f"{path}/{{response_id:str}}" for path in _PATHS]


class PageOptions(msgspec.Struct, frozen=True):
    """The query of a list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | UnsetType = UNSET


def response_routes(gateway: Gateway, responses: Responses) -> list[HTTPRouteHandler]:
    """Handlers that make responses, and read, cancel and delete the caller's own."""
    decoder = msgspec.json.Decoder(ResponseRequest)
    items_decoder = msgspec.json.Decoder(list[InputItem])
    store, background = responses.store, responses.background

    async def found(request: Request[Any, Any, Any], response_id: str) -> Kept:
        kept = await store.find(_owner(gateway, request), response_id)
        if kept is None:
            raise _not_found(response_id)
        return kept

    @post(_PATHS)
    async def create_response(request: Request[Any, Any, Any]) -> ASGIResponse:
        gateway.require_open()
        fields = await read_json(gateway, request, decoder)
        _check_background(fields)
        operation = await response_operation(gateway, store, fields, _owner(gateway, request))
        if not fields.background:
            return await respond(gateway, operation, request)
        exchange = Exchange(gateway, operation, caller_of(gateway, request), dict(request.headers))
        body = await unless_disconnected(request.receive, background.start(operation, exchange))
        return json_response(body, headers=exchange.headers_of_answer())

    @get(_PATHS_OF_ONE)
    async def retrieve_response(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIResponse:
        if request.query_params.get("stream", "false").lower() not in {"false", "0", ""}:
            raise invalid("A kept response can't be streamed: leave 'stream' out to read it.", param="stream")
        return json_response((await found(request, response_id)).response)

    @delete(_PATHS_OF_ONE, status_code=200)
    async def delete_response(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIResponse:
        await found(request, response_id)
        await background.cancel(response_id)
        await store.delete(_owner(gateway, request), response_id)
        return json_response(Deleted(response_id))

    @post([f"{path}/cancel" for path in _PATHS_OF_ONE])
    async def cancel_response(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIResponse:
        await found(request, response_id)
        await background.cancel(response_id)
        return json_response((await found(request, response_id)).response)

    @get([f"{path}/input_items" for path in _PATHS_OF_ONE])
    async def list_input_items(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIResponse:
        options = _page_options(request)
        items = items_decoder.decode((await found(request, response_id)).items)
        return json_response(_page(items, options))

    return [create_response, retrieve_response, delete_response, cancel_response, list_input_items]


def _owner(gateway: Gateway, request: Request[Any, Any, Any]) -> str:
    return caller_of(gateway, request).tenant


def _not_found(response_id: str) -> ApiError:
    message = f"Response with id '{response_id[:100]}' not found."
    return ApiError(404, message, param="response_id", code="response_not_found")


def _check_background(fields: ResponseRequest) -> None:
    if not fields.background:
        return
    if fields.store is False:
        raise invalid("'background' needs 'store': nobody could read the response otherwise.", param="background")
    if fields.stream:
        raise invalid("'background' can't be combined with 'stream' here: read the response by its id.", param="stream")


def _page_options(request: Request[Any, Any, Any]) -> PageOptions:
    query = {name: value for name, value in request.query_params.items() if name in PageOptions.__struct_fields__}
    try:
        return checked(query, PageOptions, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        raise invalid(f"Invalid value for '{name}': {problem[:1].lower()}{problem[1:]}.", param=name) from None


def _page(items: list[InputItem], options: PageOptions) -> ItemList:
    """A part of the items; raises a 400 where the one to begin after isn't among them."""
    if options.order == "desc":
        items.reverse()
    start = 0
    if options.after is not UNSET:
        ids = [item.id for item in items]
        if options.after not in ids:
            raise invalid(f"There is no item with the id '{options.after[:100]}'.", param="after")
        start = ids.index(options.after) + 1
    page = items[start : start + options.limit]
    return ItemList(
        data=page,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
        has_more=start + len(page) < len(items),
    )
