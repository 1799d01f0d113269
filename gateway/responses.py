"""JSON answers of bytes that are encoded already."""

from __future__ import annotations

import msgspec
from litestar.response.base import ASGIResponse


def json_response(
    body: bytes | msgspec.Struct, *, headers: dict[str, str] | None = None, status: int = 200
) -> ASGIResponse:
    """A response with this JSON."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return ASGIResponse(body=content, status_code=status, headers=headers, media_type="application/json")
