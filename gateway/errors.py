"""One error envelope for everything that goes wrong, and the headers that go with it."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping

import msgspec
from litestar.exceptions import HTTPException

from core_engine import EngineDied, EngineUnavailable, InvalidRequest, Overloaded

logger = logging.getLogger("jitney.gateway")

MAX_MESSAGE_CHARS = 500
_HEADER_NAME = re.compile(r"^[a-z0-9-]{1,64}$")
_HEADER_VALUE = re.compile(r"^[ -~]{0,256}$")

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 503: "service_unavailable"}
_TEXTS = {
    400: "The request is not valid HTTP.",
    404: "There is nothing at this path. The API is under /v1: try /v1/models or /v1/chat/completions.",
    405: "This path does not answer this method; the Allow header says which it does.",
    413: "The request body is too large.",
}


class ErrorDetail(msgspec.Struct, frozen=True):
    """The inside of the envelope, with OpenAI's four fields."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The envelope of every error, in a body or in a stream."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer other than success, ready to be sent.

    `param` is the field at fault, `code` a stable identifier. `retry_after_seconds` becomes both retry headers;
    `should_retry=False` tells SDKs, which retry 408, 409, 429 and 5xx by themselves, that it can't help.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        retry_after_seconds: float | None = None,
        should_retry: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self._headers = headers or {}
        self.retry_after_seconds = retry_after_seconds
        self._should_retry = should_retry

    @property
    def type(self) -> str:
        """The family of the error, by status."""
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    def headers(self) -> dict[str, str]:
        """Headers that belong to this error, retry advice included."""
        headers = dict(self._headers)
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_seconds)))
            headers["retry-after-ms"] = str(max(1, math.ceil(self.retry_after_seconds * 1000)))
        if not self._should_retry:
            headers["x-should-retry"] = "false"
        return headers

    @property
    def message(self) -> str:
        """What to tell the client, cut where it is long."""
        message = str(self)
        return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "..."

    def body(self) -> bytes:
        """The JSON envelope."""
        return msgspec.json.encode(ErrorBody(ErrorDetail(self.message, self.type, self.param, self.code)))


class ClientDisconnected(Exception):
    """The client hung up; there is nobody to answer."""


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A 400 for a field that has the wrong type, range or company."""
    return ApiError(400, message, param=param, code=code)


def in_other_words(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The error for a client who knows fields by other names, given by ours."""
    message, param = str(error), error.param
    for ours, theirs in names.items():
        message = message.replace(f"'{ours}'", f"'{theirs}'")
    return ApiError(error.status, message, param=None if param is None else names.get(param, param), code=error.code)


def limit_headers(limits: dict[str, str]) -> dict[str, str]:
    """`x-ratelimit-*` headers from the limits that admission policies reported.

    What a header can't carry is left out: a policy's slip must not break the answer.
    """
    headers = {f"x-ratelimit-{name.lower().removeprefix('x-ratelimit-')}": value for name, value in limits.items()}
    return {name: value for name, value in headers.items() if _HEADER_NAME.match(name) and _HEADER_VALUE.match(value)}


def to_api_error(error: BaseException) -> ApiError:
    """The answer for any exception; texts that aren't meant for clients, since they may name paths, are left out."""
    match error:
        case ApiError():
            return error
        case InvalidRequest():
            status = 404 if error.code == "model_not_found" else 400
            return ApiError(status, str(error), code=error.code, param=error.param)
        case Overloaded():
            return ApiError(
                429,
                str(error),
                code=error.reason,
                headers=limit_headers(error.limits),
                retry_after_seconds=error.retry_after_seconds,
            )
        case EngineDied():
            message = "The engine stopped while it was working on this request; send it again."
            return ApiError(503, message, code="engine_died", retry_after_seconds=5)
        case EngineUnavailable():
            message = "The engine does not take requests at the moment."
            return ApiError(503, message, code="engine_unavailable", retry_after_seconds=5)
        case HTTPException(status_code=status) if status < 500:
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            if "GET" in headers.get("allow", ""):
                headers["allow"] += ", HEAD"
            return ApiError(status, _TEXTS.get(status, "The request can't be served."), headers=headers)
    return ApiError(500, "The server met an error of its own; its log says more.", code="internal_error")


def report(error: BaseException) -> ApiError:
    """The answer for any exception, after a fault of our own was logged."""
    answer = to_api_error(error)
    if answer.status == 500 and error is not answer:
        logger.error("a request failed inside the gateway", exc_info=error)
    return answer
