"""API keys: a bearer token or `x-api-key`, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from gateway.errors import ApiError

# Probes come from machines that have no key, and a browser shows a page without one; the document holds no secret.
KEYLESS_PATHS = frozenset({"/health", "/ready", "/openapi.json", "/docs"})
ADMIN_PATH = "/admin/"


class ApiKeys:
    """The keys that open the server; with none, everything is open but what the admin key guards."""

    def __init__(
        self, keys: tuple[str, ...], *, admin_key: str | None = None, keyless_paths: frozenset[str] = KEYLESS_PATHS
    ) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._admin_digests = [] if admin_key is None else [hashlib.sha256(admin_key.encode()).digest()]
        self._keyless_paths = keyless_paths

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise a 401 unless the path is open or the headers carry a key; `path` is already normalised.

        Without an admin key there is nothing below ADMIN_PATH: a 404.
        """
        is_admin = path.startswith(ADMIN_PATH)
        if is_admin and not self._admin_digests:
            raise ApiError(404, "The admin API is not open: --admin-key, or `admin_key` of --config, opens it.")
        known = self._admin_digests if is_admin else self._digests
        if not known or path in self._keyless_paths:
            return
        token = offered_key(headers)
        if token is None:
            message = "You didn't provide an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
            raise _unauthorized(message)
        digest = hashlib.sha256(token).digest()
        # Every key is compared, so that the time taken doesn't tell which one came close.
        if not sum(hmac.compare_digest(digest, key) for key in known):
            raise _unauthorized("Incorrect API key provided.")


def offered_key(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key that was sent, if any; of two the bearer token."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    token = token.strip() if scheme.lower() == b"bearer" else b""
    return token or headers.get(b"x-api-key", b"").strip() or None


def api_key(headers: Mapping[str, str]) -> str | None:
    """The same from decoded headers, for whoever wants to know whose it is."""
    names = ("authorization", "x-api-key")
    token = offered_key({name.encode(): headers.get(name, "").encode("latin-1", "replace") for name in names})
    return None if token is None else token.decode("latin-1")


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
