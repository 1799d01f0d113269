"""Running one line: the same way through the gateway as an HTTP request, again until there is an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from pathlib import Path

import msgspec

from core_engine import Caller, EngineDied
from gateway.batches.endpoints import ENDPOINTS, Counter
from gateway.batches.store import Line, Result
from gateway.errors import ApiError, report
from gateway.protocol.batches import (
    BatchInputDetails,
    BatchObject,
    BatchOutputDetails,
    BatchUsage,
    LineError,
    LineResponse,
    RawLine,
    ResultLine,
)

logger = logging.getLogger("jitney.batches")

# An engine that dies takes all running lines with it. Those that saw it die this often run one at a time, so that the
# one at fault is found, and it alone is given up.
SUSPECT_DEATHS, MAX_DEATHS = 3, 6

POLL_SECONDS = 0.2

# Plain characters in JSON, but ends of a line to clients that split text by Unicode's rules, as Python does.
_LINE_ENDS = ("\x85", "\u2028", "\u2029")

_DECODER = msgspec.json.Decoder(RawLine)


class LineRunner:
    """Answers lines of input files."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._gateway = counter.gateway
        self._suspects = asyncio.Lock()

    async def run(self, batch: BatchObject, caller: Caller, input_path: Path, line: Line) -> Result:
        """Answer a line, however long that takes: a model that is down, full or away is never the line's fault.

        Raises OSError where the input file can't be read.
        """
        content = await asyncio.to_thread(_read, input_path, line)
        body = bytes(_DECODER.decode(content).body)
        deaths = 0
        while True:
            await self._ready(batch.model)
            try:
                async with self._suspects if deaths >= SUSPECT_DEATHS else contextlib.nullcontext():
                    return _success(line, await ENDPOINTS[batch.endpoint](self._counter, body, caller))
            except Exception as error:
                failure = report(error)
                deaths += isinstance(error, EngineDied)
                if deaths == MAX_DEATHS:
                    logger.error("a line is given up: the engine died under it")  # noqa: TRY400 - not by us
                    message = f"The engine died {deaths} times while it ran this line, at last on its own."
                    failure = ApiError(500, message, code="engine_died")
            if failure.status not in {429, 503} and failure.code != "model_not_found":
                return _failure(line, failure)
            await asyncio.sleep(failure.retry_after_seconds or 1.0 if failure.status == 429 else POLL_SECONDS)

    async def _ready(self, name: str | None) -> None:
        """Wait for the model, which was there when the input file was checked."""
        while True:
            model = self._gateway.find(name or "")
            if model is not None and model.state == "ready" and not self._gateway.draining:
                return
            await asyncio.sleep(POLL_SECONDS)


def unrun(line: Line, code: str, message: str) -> bytes:
    """The entry, for the error file, of a line that was never run."""
    return _entry(line, None, LineError(code, message))


def _read(path: Path, line: Line) -> bytes:
    with path.open("rb") as file:
        file.seek(line.start)
        return file.read(line.num_bytes)


def _success(line: Line, body: bytes) -> Result:
    entry = _entry(line, LineResponse(200, _request_id(), msgspec.Raw(body)))
    return Result(number=line.number, succeeded=True, entry=entry, usage=_usage(body))


def _failure(line: Line, error: ApiError) -> Result:
    entry = _entry(line, LineResponse(error.status, _request_id(), msgspec.Raw(error.body())))
    return Result(number=line.number, succeeded=False, entry=entry)


def _entry(line: Line, response: LineResponse | None, error: LineError | None = None) -> bytes:
    result = ResultLine(id=f"batch_req_{uuid.uuid4().hex}", custom_id=line.custom_id, response=response, error=error)
    entry = msgspec.json.encode(result)
    for character in _LINE_ENDS:
        entry = entry.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return entry


def _request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


class _Cached(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Reasoning(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts under the names of both families of endpoints."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Reasoning | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Reasoning | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


_ANSWER_DECODER = msgspec.json.Decoder(_Answer)


def _usage(body: bytes) -> BatchUsage:
    usage = _ANSWER_DECODER.decode(body).usage or _Usage()
    input_tokens = usage.prompt_tokens or usage.input_tokens or 0
    output_tokens = usage.completion_tokens or usage.output_tokens or 0
    cached = usage.prompt_tokens_details or usage.input_tokens_details or _Cached()
    reasoning = usage.completion_tokens_details or usage.output_tokens_details or _Reasoning()
    return BatchUsage(
        input_tokens,
        output_tokens,
        input_tokens + output_tokens,
        BatchInputDetails(cached.cached_tokens or 0),
        BatchOutputDetails(reasoning.reasoning_tokens or 0),
    )
