"""`/admin`: which policies are in force, other ones, and why a request is where it is."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from core_engine import (
    Answer,
    DescribePolicies,
    DescribeRequest,
    EngineClient,
    PolicyEvent,
    PolicyReport,
    RequestReport,
    SwapPolicies,
)
from gateway.body import read_json
from gateway.errors import ApiError
from gateway.responses import json_response
from gateway.state import Gateway


class SwapRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole set that shall be in force; what it leaves out returns to the default."""

    policies: Annotated[list[Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]], msgspec.Meta(max_length=64)]


class PolicyHistory(msgspec.Struct, frozen=True):
    """Every change of the policies in force since the engine started, oldest first."""

    history: list[PolicyEvent]


class RequestAnswer(msgspec.Struct, frozen=True):
    """One report for each prompt of the request."""

    id: str
    prompts: list[RequestReport]


def admin_routes(gateway: Gateway) -> list[HTTPRouteHandler]:
    """Handlers behind the admin key; `?model=` says of which model, the first unless it does."""
    decoder = msgspec.json.Decoder(SwapRequest)

    def client(request: Request[Any, Any, Any]) -> EngineClient:
        return gateway.model(request.query_params.get("model")).client

    async def policies(request: Request[Any, Any, Any]) -> PolicyReport:
        answer = await client(request).ask(DescribePolicies())
        assert isinstance(answer.result, PolicyReport)
        return answer.result

    @get("/admin/policies")
    async def show_policies(request: Request[Any, Any, Any]) -> ASGIResponse:
        return json_response(await policies(request))

    @get("/admin/policies/history")
    async def show_history(request: Request[Any, Any, Any]) -> ASGIResponse:
        return json_response(PolicyHistory((await policies(request)).history))

    @post("/admin/policies")
    async def swap_policies(request: Request[Any, Any, Any]) -> ASGIResponse:
        fields = await read_json(gateway, request, decoder)
        answer = await client(request).ask(SwapPolicies(tuple(fields.policies)))
        _raise_error(answer)
        assert isinstance(answer.result, PolicyEvent)
        return json_response(answer.result)

    @get("/admin/requests/{request_id:str}")
    async def show_request(request_id: FromPath[str]) -> ASGIResponse:
        # One request over HTTP is one to the engine for each of its prompts, numbered from 0.
        engines = [model.client for model in gateway.models if model.client.state == "ready"]
        reports = [report for engine in engines async for report in _reports(engine, request_id)]
        if not reports:
            raise ApiError(404, "No such request waits or runs here.", code="request_not_found")
        return json_response(RequestAnswer(request_id, reports))

    return [show_policies, show_history, swap_policies, show_request]


async def _reports(engine: EngineClient, request_id: str) -> AsyncGenerator[RequestReport, None]:
    for number in itertools.count():
        result = (await engine.ask(DescribeRequest(f"{request_id}-{number}"))).result
        if isinstance(result, RequestReport):
            yield result
        else:
            return


def _raise_error(answer: Answer) -> None:
    if answer.error is None:
        return
    if answer.restart_needed:
        raise ApiError(409, answer.error, param="policies", code="restart_needed", should_retry=False)
    raise ApiError(400, answer.error, param="policies", code="invalid_policies")
