"""Server-sent events: frames out, heartbeats when it is silent, an end as soon as the client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from gateway.direct import DirectWriter, direct_writer
from gateway.disconnect import disconnected
from gateway.errors import ApiError, ClientDisconnected, report

# Is told `ready` and `write`: while it is ready, frames may be written at once that would be waited for else.
Divert = Callable[[Callable[[], bool], Callable[[bytes], None]], None]

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": still here\n\n"

_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


def frame(payload: bytes) -> bytes:
    """One event: a line of data and nothing else, since SDKs raise on `retry:`, `id:` and empty events."""
    return b"data: " + payload + b"\n\n"


def named_frame(name: str, payload: bytes) -> bytes:
    """The same with the name of the event, as some APIs have it."""
    return b"event: " + name.encode() + b"\n" + frame(payload)


class EventStream(ASGIResponse):
    """Sends what `frames` yields.

    The response starts with the first frame, or with the first heartbeat: what fails before is an answer with a
    proper status. `headers` is asked at that moment. Later an error is a last frame, which `failure` makes, because a
    silent cut looks like success.

    `divert` is told how frames can be written past `frames`, while that waits for its next one.

    `close` is called exactly once, with what went wrong if anything did, also where the client hung up before a frame
    was asked for. Litestar's own Stream would not even start the iterator then, and so not run its `finally`.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        divert: Divert,
        failure: Callable[[ApiError], bytes],
        close: Callable[[BaseException | None], None],
        heartbeat: bytes,
        heartbeat_seconds: float,
        headers: Callable[[], dict[str, str]],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._late_headers = headers
        self._frames = frames
        self._divert = divert
        self._failure = failure
        self._close = close
        self._heartbeat = heartbeat
        self._heartbeat_seconds = heartbeat_seconds
        self._started = False
        self._error: BaseException | None = None
        self._sending = asyncio.Lock()
        self._last_seconds = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or stop where the client hangs up."""
        tasks = [
            asyncio.ensure_future(self._send_all(direct_writer(scope), send)),
            asyncio.ensure_future(disconnected(receive)),
            asyncio.ensure_future(self._keep_alive(send)),
        ]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
            else:
                self._error = ClientDisconnected()
        except BaseException as error:
            self._error = error
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._frames.aclose()
            self._close(self._error)

    async def _send_all(self, direct: DirectWriter, send: Send) -> None:
        now = asyncio.get_running_loop().time

        def write(data: bytes) -> None:
            direct.write(data)
            self._last_seconds = now()

        self._divert(direct.ready, write)
        try:
            async for data in self._frames:
                if not self._started:
                    await self._start(send)
                if direct.ready():
                    write(data)
                else:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    self._last_seconds = now()
        except Exception as error:
            if not self._started:
                raise
            self._error = error
            await send({"type": "http.response.body", "body": self._failure(report(error)), "more_body": True})
        async with self._sending:  # else a heartbeat could come after the end
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        self._last_seconds = now()
        while True:
            await asyncio.sleep(self._last_seconds + self._heartbeat_seconds - now())
            if now() - self._last_seconds >= self._heartbeat_seconds:
                await self._start(send)
                async with self._sending:
                    await send({"type": "http.response.body", "body": self._heartbeat, "more_body": True})
                    self._last_seconds = now()

    async def _start(self, send: Send) -> None:
        async with self._sending:  # what comes first, a frame or a heartbeat, starts the response for both
            if not self._started:
                self.headers.update(self._late_headers())
                await self.start_response(send)
                self._started = True
