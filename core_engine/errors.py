"""The exceptions of the engine that a caller can meet."""

from __future__ import annotations


class JitneyError(Exception):
    """Base of every error that the engine raises on purpose; its text is meant for a person."""


class ConfigurationError(JitneyError):
    """An option or a policy's name or option is wrong; the text names it and what would be right."""


class ModelError(JitneyError):
    """A model can't be found, read or served; the text says which and why."""


class InvalidRequest(JitneyError):
    """A request can never be served here, whatever the load.

    `code` is a stable identifier (`context_length_exceeded`, ...); `param` the field at fault.
    """

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class Overloaded(JitneyError):
    """A request is refused for now.

    `reason` is a stable identifier (`queue_full`, ...), `retry_after_seconds` computed from the
    measured drain rate, `limits` what becomes the `x-ratelimit-*` headers.
    """

    def __init__(
        self, message: str, reason: str, retry_after_seconds: float, limits: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.limits = limits or {}


class EngineUnavailable(JitneyError):
    """No engine serves at the moment: it loads, restarts, drains or has failed for good."""


class EngineDied(EngineUnavailable):
    """The engine that was running this request ended; its tokens so far are all there will be."""


class IntegrityError(JitneyError):
    """An invariant of our own accounting is broken: a bug in the engine, never a user's mistake."""
