"""Clients of servers that speak plain HTTP."""

from __future__ import annotations

import ssl

import openai

# Trusts nobody, and is made once: to load the certificates of the world takes longer than most tests.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class _HttpClient(openai.DefaultHttpxClient):
    """Closes itself where nobody does, like the one that the SDK would have made."""

    def __del__(self) -> None:
        self.close()


def openai_client(base_url: str, key: str = "none") -> openai.OpenAI:
    """The official SDK, told not to hide failures behind retries."""
    http = _HttpClient(trust_env=False, verify=NO_CERTIFICATES)
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0, http_client=http)
