"""Errors in the envelope that clients of a path expect."""

from __future__ import annotations

import re

import msgspec

from gateway.errors import ApiError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
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


def error_body(error: ApiError, path: str, request_id: str) -> bytes:
    """The error as an answer of this path."""
    return messages_error(error, request_id) if is_messages_path(path) else error.body()


def messages_error(error: ApiError, request_id: str) -> bytes:
    """The error as the Messages API has it: without a field for the parameter, which the message names instead."""
    kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    message = error.message
    field = _FIELD.match(error.param or "")
    if field is not None and f"'{field.group()}" not in message:
        message = f"{error.param}: {message}"
    return msgspec.json.encode(MessageErrorBody(MessageErrorDetail(kind, message), request_id))
