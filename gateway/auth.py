"""API keys: a bearer token, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from gateway.errors import ApiError

# Probes come from machines that have no key.
KEYLESS_PATHS = frozenset({"/health", "/ready"})


class ApiKeys:
    """The keys that open the server; with none, everything is open."""

    def __init__(self, keys: tuple[str, ...], *, keyless_paths: frozenset[str] = KEYLESS_PATHS) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._keyless_paths = keyless_paths

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise a 401 unless the path is open or the headers carry a key; `path` is already normalised."""
        if not self._digests or path in self._keyless_paths:
            return
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise _unauthorized("You didn't provide an API key: send it as `Authorization: Bearer KEY`.")
        digest = hashlib.sha256(token.strip()).digest()
        # Every key is compared, so that the time taken doesn't tell which one came close.
        if not sum(hmac.compare_digest(digest, known) for known in self._digests):
            raise _unauthorized("Incorrect API key provided.")


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
