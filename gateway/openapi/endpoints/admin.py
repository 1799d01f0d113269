"""`/admin`, which is there where the server has an admin key."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from core_engine import Kind, PolicyEvent, PolicyReport, RequestReport
from gateway.deployment import Names, ReasoningParser, ToolParser
from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.openapi.endpoints.generation import CREATED, MODEL
from gateway.routes.admin import PolicyHistory, RequestAnswer, SwapRequest
from gateway.routes.admin_models import ModelReport, ModelReports, Unloaded

FAMILY = "Admin"


class ModelTable(Names, frozen=True, kw_only=True):
    """A model with its options, which are those of `jitney serve` with underscores; others than here are taken too."""

    model: str
    task: Kind = "generate"
    tool_parser: ToolParser = "auto"
    reasoning_parser: ReasoningParser = "auto"


class AdminQuery(msgspec.Struct, kw_only=True):
    """Whose policies: those of the first model unless it is named."""

    model: str | UnsetType = UNSET


_EVENT = PolicyEvent(kind="adopted", version=2, iteration=1200, policies=("fair_share", "stretch:max_stretch=3"))
_MODEL = ModelReport(
    name=MODEL, aliases=[], model="/models/smollm2", task="generate", state="ready", failure=None, engine_pid=4242,
    created=CREATED, architecture="LlamaForCausalLM", dtype="float32", device="cpu", max_model_len=8192,
    num_blocks=2048, block_size=16,
)  # fmt: skip
_REQUEST = RequestReport(
    request_id="chatcmpl-1-0",
    tenant="default",
    class_name="standard",
    waited_iterations=3,
    waited_seconds=0.2,
    sequences=[],
)

ADMIN = (
    Endpoint(
        method="get",
        path="/admin/policies",
        name="show_policies",
        family=FAMILY,
        summary="Which policies are in force",
        access="admin_key",
        query=AdminQuery,
        answers={
            200: Answer(
                "The policies and their history",
                Content(PolicyReport, PolicyReport(version=2, on_probation=True, policies=[], history=[_EVENT])),
            )
        },
        errors=(404, 503),
    ),
    Endpoint(
        method="post",
        path="/admin/policies",
        name="swap_policies",
        family=FAMILY,
        summary="Put other policies in force",
        access="admin_key",
        query=AdminQuery,
        request=Content(SwapRequest, {"policies": ["fair_share", "stretch:max_stretch=3"]}),
        answers={200: Answer("They are in force, on probation", Content(PolicyEvent, _EVENT))},
        errors=(404, 409, 503),
    ),
    Endpoint(
        method="get",
        path="/admin/policies/history",
        name="show_history",
        family=FAMILY,
        summary="Every change of the policies since the engine started",
        access="admin_key",
        query=AdminQuery,
        answers={200: Answer("The changes, oldest first", Content(PolicyHistory, PolicyHistory([_EVENT])))},
        errors=(404, 503),
    ),
    Endpoint(
        method="get",
        path="/admin/requests/{request_id}",
        name="show_request",
        family=FAMILY,
        summary="Why a request is where it is",
        access="admin_key",
        answers={
            200: Answer("A report for each prompt", Content(RequestAnswer, RequestAnswer("chatcmpl-1", [_REQUEST])))
        },
        errors=(404, 503),
    ),
    Endpoint(
        method="get",
        path="/admin/models",
        name="show_models",
        family=FAMILY,
        summary="Every model and how it is",
        access="admin_key",
        answers={
            200: Answer("The models, in the order they were loaded", Content(ModelReports, ModelReports([_MODEL])))
        },
    ),
    Endpoint(
        method="post",
        path="/admin/models",
        name="load_model",
        family=FAMILY,
        summary="Load a model while others serve",
        access="admin_key",
        request=Content(ModelTable, {"name": MODEL, "model": "/models/smollm2"}),
        answers={201: Answer("It is loaded", Content(ModelReport, _MODEL))},
        errors=(409, 503),
    ),
    Endpoint(
        method="delete",
        path="/admin/models/{name}",
        name="unload_model",
        family=FAMILY,
        summary="Unload a model once its requests have ended",
        description="Its name may hold slashes.",
        access="admin_key",
        answers={200: Answer("It is gone", Content(Unloaded, Unloaded(name=MODEL)))},
        errors=(404, 409),
    ),
)
