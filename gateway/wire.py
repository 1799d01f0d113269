"""uvicorn's HTTP/1.1 protocol with the limits that it leaves out: size and time of a request's head."""

from __future__ import annotations

import asyncio
import re

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.direct import offer_writing
from gateway.edge import error_headers, request_id
from gateway.errors import ApiError
from gateway.settings import GatewaySettings

# Beyond that nobody reads on just to answer politely; between the two the application answers 431.
HARD_LIMIT_FACTOR = 4

# What is taken in of a body after its answer was sent; a client reads that answer only when it has sent everything.
REST_LIMIT_BYTES = 64 * 1024 * 1024

_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes connections whose head is too large or too slow, with our error envelope.

    httptools bounds neither, so that a client could fill the memory, or hold a connection for ever, one header byte
    at a time. The same clock runs for the rest of a body that was answered before it was read, which is no head.
    """

    settings = GatewaySettings()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock: the first head must be complete in time."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._chunk_bytes = 0  # received last
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_body = False  # of the message that is parsed
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._head_done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; refuse a head that goes on for too long."""
        if not self._answering():
            self._expect_head()
        self._chunk_bytes = len(data)
        super().data_received(data if self._in_body else _without_offers(data))
        if self._head_timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._in_body and self._head_bytes > REST_LIMIT_BYTES:
                self.transport.close()
            elif not self._in_body and self._head_bytes > self.settings.max_header_bytes * HARD_LIMIT_FACTOR:
                self._refuse(ApiError(431, "The request line and headers are too large.", code="headers_too_large"))

    def on_message_begin(self) -> None:
        """A head begins, perhaps in the middle of what was received."""
        if self._head_timer is None and not self._answering():
            self._expect_head()
            self._head_bytes = 1 - self._chunk_bytes  # of this chunk one byte is known to be the head's
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_done()
        self._in_body = True
        super().on_headers_complete()
        offer_writing(self.cycle)

    def on_message_complete(self) -> None:
        """The body is complete."""
        self._head_done()
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what isn't HTTP."""
        self._refuse(ApiError(400, "The request is not valid HTTP/1.1.", code="invalid_http"))

    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn declares
        return cycle is not None and not cycle.response_complete

    def _may_answer(self) -> bool:
        """Whether nothing else is being answered: else the bytes would land inside another answer.

        A body that turns out not to be HTTP is answered in the place of the application, which sees its client leave.
        """
        if self._answering() and (not self._in_body or self.cycle.response_started or self.pipeline):
            return False
        if self._answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        return True

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self.settings.header_timeout_seconds, self._on_slow_head)

    def _head_done(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self._in_body or not self._head_bytes:  # it has its answer, or it was opened ahead of need and never used
            self.transport.close()
            return
        seconds = self.settings.header_timeout_seconds
        message = f"The request line and headers were not complete within {seconds:g} seconds."
        self._refuse(ApiError(408, message, code="request_timeout"))

    def _refuse(self, error: ApiError) -> None:
        if self._may_answer():
            body = error.body()
            headers = error_headers(error, body)
            headers += [*self.server_state.default_headers, (b"x-request-id", request_id(None))]
            lines = [name + b": " + value + b"\r\n" for name, value in headers]
            self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"connection: close\r\n\r\n", body]))
        self.transport.close()


def _without_offers(data: bytes) -> bytes:
    """The same with another name for the header `upgrade` of the first head in it.

    An offer of another protocol may be left alone (RFC 9110, 7.8), as that of HTTP/2 by Java's client and curl, but
    httptools would take the body behind it for the other protocol, and nobody would read it.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(rb"\r\nx-offer:", head) + end + rest


def bounded_protocol(settings: GatewaySettings) -> type[BoundedHttpProtocol]:
    """The protocol with these settings; uvicorn takes a class, not an instance."""
    return type("ConfiguredHttpProtocol", (BoundedHttpProtocol,), {"settings": settings})
