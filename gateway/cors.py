"""Which web pages may use the server.

With API keys a page needs a key like anybody, so any origin may ask. Without keys only pages of this machine may:
otherwise any page that somebody opens could use a server on their machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.errors import ApiError

Headers = list[tuple[bytes, bytes]]

_METHODS = b"GET, HEAD, POST, DELETE, OPTIONS"
_PREFLIGHT_SECONDS = b"600"


class CorsRule:
    """Says which origins may use the server and what they are told; credentials (cookies) are never allowed."""

    def __init__(self, origins: tuple[str, ...] | None, *, with_keys: bool) -> None:
        self._any = "*" in origins if origins is not None else with_keys
        self._listed = None if origins is None else frozenset(origin.rstrip("/").lower() for origin in origins)

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may use the server."""
        if self._any:
            return True
        if self._listed is not None:
            return origin.lower() in self._listed
        return _is_loopback(origin)

    def response_headers(self, origin: str) -> Headers:
        """What every answer to a page of an allowed origin carries, errors too."""
        return [
            (b"access-control-allow-origin", b"*" if self._any else origin.encode("latin-1")),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"Origin"),
        ]

    def refusal(self, origin: str) -> ApiError:
        """The answer to a page of another origin."""
        return ApiError(
            403,
            f"Pages of the origin {origin[:100]!r} may not use this server; its operator can allow them with "
            "`--cors-origin`.",
            code="origin_not_allowed",
        )


def is_preflight(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks for leave before the real request."""
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def preflight_headers(headers: Mapping[bytes, bytes]) -> Headers:
    """The leave: every method, and whatever headers the page asked for (SDKs add their own)."""
    granted = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _PREFLIGHT_SECONDS)]
    if wanted := headers.get(b"access-control-request-headers"):
        granted.append((b"access-control-allow-headers", wanted))
    return granted


def is_loopback_host(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_loopback(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and is_loopback_host(host)
