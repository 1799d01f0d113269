"""A careful client: what the server gets wrong is an AssertionError."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

from tests.gateway.events import Events, read_events

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
T = TypeVar("T")


class Client:
    """Small greedy requests to a model; keyword arguments override their fields."""

    def __init__(self, http: httpx.Client, model: str) -> None:
        self.http = http
        self.model = model

    def chat_body(self, **fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Name three colours."}]
        return {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 8, **fields}

    def completion_body(self, **fields: Any) -> dict[str, Any]:
        return {"model": self.model, "prompt": "The sky is", "temperature": 0, "max_tokens": 8, **fields}

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(path, json=body)

    def ok(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def chat(self, **fields: Any) -> dict[str, Any]:
        return self.ok(CHAT, self.chat_body(**fields))

    def complete(self, **fields: Any) -> dict[str, Any]:
        return self.ok(COMPLETIONS, self.completion_body(**fields))

    def stream(self, path: str, body: dict[str, Any]) -> Events:
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream"
        return read_events(response.content)

    def metric(self, name: str) -> float:
        """A gauge or counter, summed over its labels."""
        lines = [line for line in self.http.get("/metrics").text.splitlines() if line.startswith(f"{name}{{")]
        assert lines, f"there is no {name}"
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    @functools.cached_property
    def plain_token(self) -> tuple[int, str]:
        """A token of a few letters, and its text."""
        for word in (" the", " capital", "the", "er"):
            ids = self.ok("/tokenize", {"prompt": word, "add_special_tokens": False})["tokens"]
            if len(ids) == 1:
                return ids[0], word
        raise AssertionError("no word is a single token")

    def canary(self) -> None:
        """An ordinary request works."""
        assert self.chat(max_tokens=2)["usage"]["completion_tokens"] >= 1


def content(answer: dict[str, Any]) -> str:
    """The text of the only choice."""
    (choice,) = answer["choices"]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run the calls at the same time; results in the order given."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
