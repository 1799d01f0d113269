"""Errors in the envelope that clients of a path expect."""

from __future__ import annotations

import re
from collections.abc import Container

import msgspec

from gateway.errors import ApiError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_OVERLOADED = {503: 529}  # as Anthropic's clients know it
VERSION = b"anthropic-version"  # the header that every client of Anthropic's API sends
_FIELD = re.compile(r"\w+")


class MessageErrorDetail(msgspec.Struct, frozen=True):
    """The inside of the envelope."""

    type: str
    message: str


class MessageErrorBody(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """The envelope of every error of the Messages API."""

    error: MessageErrorDetail
    request_id: str


def is_messages_path(path: str) -> bool:
    """Whether this path, already normalised, belongs to the Messages API."""
    return f"{path.removeprefix('/v1')}/".startswith("/messages/")


def wants_messages_form(path: str, headers: Container[bytes]) -> bool:
    """Whether a request wants answers in Anthropic's form: by its path, or, where there are two forms, by a header."""
    is_models_path = f"{path.removeprefix('/v1')}/".startswith("/models/")
    return is_messages_path(path) or (is_models_path and VERSION in headers)


def in_form(error: ApiError, request_id: str, *, messages_form: bool) -> tuple[int, bytes]:
    """Status and body of an error, in Anthropic's form or in OpenAI's."""
    if not messages_form:
        return error.status, error.body()
    return _OVERLOADED.get(error.status, error.status), messages_error(error, request_id)


def messages_error(error: ApiError, request_id: str) -> bytes:
    """The error as the Messages API has it: without a field for the parameter, which the message names instead."""
    status = _OVERLOADED.get(error.status, error.status)
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    message = error.message
    field = _FIELD.match(error.param or "")
    if field is not None and f"'{field.group()}" not in message:
        message = f"{error.param}: {message}"
    return msgspec.json.encode(MessageErrorBody(MessageErrorDetail(kind, message), request_id))
