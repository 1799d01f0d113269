"""The OpenAPI document: endpoints, schemas of their bodies, and the envelope of errors."""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.errors import ApiError, ErrorBody
from gateway.messages_api.envelope import MessageErrorBody, in_form, is_messages_path
from gateway.openapi.endpoint import Content, Endpoint
from gateway.openapi.endpoints import ENDPOINTS
from gateway.openapi.schemas import Schemas

Json = dict[str, Any]

_DESCRIPTION = """\
An OpenAI-compatible server. What all endpoints have in common:

- Paths that begin with `/v1` are there without it too, `/tokenize`, `/detokenize` and `/version` also with it
  (`x-also-at`); GET comes with HEAD. A path asked with another method answers 405, an unknown path 404.
- In requests `null` means absent, for every field that may be null. Outside `/admin` unknown fields are ignored.
- Bodies are UTF-8 without compression.
- Every answer has `x-request-id`, the one that was sent or a new one. Every error has the same envelope,
  but for those of `/v1/messages`, which has its own.
- Keys are taken as `x-api-key` too.
"""
_ERRORS = {
    400: "What was asked for is invalid or can't be done; `param` names the field at fault",
    401: "The key is missing or wrong",
    403: "Pages of this origin may not use the server",
    404: "There is no such model, response, file, batch or request",
    408: "The request did not come in time",
    409: "It is in use, exists already, or is past changing",
    413: "The body is too large",
    415: "The body is of another kind, or compressed",
    429: "A limit is reached; `retry-after` says when there should be room",
    431: "The request line and headers are too large",
    500: "A fault of the server's own",
    503: "The server or the engine takes no requests now; `retry-after` says when it should",
    529: "The server or the engine takes no requests now; `retry-after` says when it should",
    507: "The disk space for files is used up",
}
_ERROR_CODES = {400: "invalid_value", 401: "invalid_api_key", 404: "model_not_found", 429: "queue_full"}
_ENVELOPES: Mapping[bool, Any] = {False: ErrorBody, True: MessageErrorBody}  # by whether it is the Messages API
_RETRY = {
    "retry-after": {"description": "Seconds after which to try again", "schema": {"type": "string"}},
}
_SECURITY: Mapping[str, list[Json]] = {
    "key": [{"key": []}, {}],  # a server without keys is open
    "admin_key": [{"admin_key": []}],
    "open": [],
}


@functools.cache
def document(*, with_admin: bool) -> bytes:
    """The document as JSON; `with_admin` for servers with an admin key."""
    return msgspec.json.encode(describe(with_admin=with_admin))


def describe(*, with_admin: bool) -> Json:
    """The document as plain values."""
    endpoints = [endpoint for endpoint in ENDPOINTS if with_admin or endpoint.access != "admin_key"]
    requests = [endpoint.request.type for endpoint in endpoints if endpoint.request is not None]
    schemas = Schemas(requests, [kind for endpoint in endpoints for kind in endpoint.types] + [*_ENVELOPES.values()])
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = _operation(endpoint, schemas)
    keys = {"key": "An API key, where the server has any"}
    if with_admin:
        keys["admin_key"] = "The admin key"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Jitney",
            "version": importlib.metadata.version("jitney"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": family} for family in dict.fromkeys(endpoint.family for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {
                _name_of_error(endpoint, status): _error(endpoint, status, schemas)
                for endpoint in endpoints
                for status in endpoint.statuses_of_errors
            },
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text} for name, text in keys.items()
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: Schemas) -> Json:
    operation: Json = {
        "operationId": endpoint.name,
        "tags": [endpoint.family],
        "summary": endpoint.summary,
        "security": _SECURITY[endpoint.access],
        "parameters": [*_of_path(endpoint.path), *_of_query(endpoint.query)],
        "responses": {
            str(status): {"description": answer.description, "content": _contents(answer.contents, schemas)}
            for status, answer in endpoint.answers.items()
        },
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.also_at is not None:
        operation["x-also-at"] = endpoint.also_at
    if endpoint.request is not None:
        operation["requestBody"] = {"required": True, "content": _contents([endpoint.request], schemas)}
    for status in endpoint.statuses_of_errors:
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{_name_of_error(endpoint, status)}"}
    return operation


def _of_path(path: str) -> Iterable[Json]:
    for name in re.findall(r"\{(\w+)\}", path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _of_query(query: type[msgspec.Struct] | None) -> Iterable[Json]:
    if query is None:
        return
    _, components = msgspec.json.schema_components([query])
    for name, field in components[query.__name__]["properties"].items():
        yield {"name": name, "in": "query", "schema": field}


def _contents(contents: Sequence[Content], schemas: Schemas) -> Json:
    described: Json = {}
    for content in contents:
        media: Json = {"schema": schemas.of(content.type), "example": _plain(content.example)}
        if content.events is not None:
            media["x-event-schema"] = schemas.of(content.events)
        described[content.media_type] = media
    return described


def _plain(example: object) -> object:
    """The example as the JSON it becomes."""
    return msgspec.json.decode(msgspec.json.encode(example))


def _name_of_error(endpoint: Endpoint, status: int) -> str:
    return f"{'MessagesError' if is_messages_path(endpoint.path) else 'Error'}{status}"


def _error(endpoint: Endpoint, status: int, schemas: Schemas) -> Json:
    error = ApiError(status, _ERRORS[status] + ".", code=_ERROR_CODES.get(status))
    messages_form = is_messages_path(endpoint.path)
    _, body = in_form(error, "req_1", messages_form=messages_form)
    example, schema = msgspec.json.decode(body), schemas.of(_ENVELOPES[messages_form])
    described: Json = {
        "description": _ERRORS[status],
        "content": {"application/json": {"schema": schema, "example": example}},
    }
    if status in {429, 503, 529}:
        described["headers"] = _RETRY
    return described
