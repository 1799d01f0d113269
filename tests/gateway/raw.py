"""Requests byte by byte, for what a polite HTTP client would never send."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from typing import Any

from tests.gateway.fake_engine import MODEL

PATIENCE_SECONDS = 30.0  # a guard against hanging, never a measure


def head(method: str, target: str, **headers: str) -> bytes:
    """Request line and headers; `_` in a name becomes `-`."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def json_post(target: str, **body: Any) -> bytes:
    """A whole POST."""
    content = json.dumps({"model": MODEL, **body}).encode()
    return head("POST", target, content_type="application/json", content_length=str(len(content))) + content


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    connection.settimeout(PATIENCE_SECONDS)
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def read_one(connection: socket.socket) -> bytes:
    """One response with its body, of which the head says the length; the connection stays open."""
    connection.settimeout(PATIENCE_SECONDS)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    headers, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", headers)
    assert length is not None
    while len(body) < int(length[1]):
        piece = connection.recv(65536)
        received, body = received + piece, body + piece
    return received


def statuses(raw: bytes) -> list[int]:
    """The status of every response."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", raw)]


def envelope(raw: bytes) -> dict[str, Any]:
    """The error in a single raw response, which must carry a request id."""
    headers, _, body = raw.partition(b"\r\n\r\n")
    assert b"x-request-id: " in headers
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait for a condition; False where it doesn't come to hold."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
