"""Reading server-sent events as strictly as the strictest client does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Events:
    """A whole stream: the data of its events, and whether it ended with [DONE]."""

    chunks: list[dict[str, Any]]
    done: bool
    comments: int

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk["choices"] if choice["index"] == index]

    def texts(self, index: int = 0) -> list[str]:
        choices = self.choices(index)
        return [choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices]

    def text(self, index: int = 0) -> str:
        return "".join(self.texts(index))

    def finish_reason(self, index: int = 0) -> str | None:
        """The reason of the last piece; no other may have one."""
        reasons: list[str | None] = [choice["finish_reason"] for choice in self.choices(index)]
        *others, last = reasons
        assert not any(others)
        return last

    def entries(self, index: int = 0) -> list[dict[str, Any]]:
        """The log-probabilities of a chat choice."""
        return [e for choice in self.choices(index) if choice["logprobs"] for e in choice["logprobs"]["content"]]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def read_events(raw: bytes) -> Events:
    """Parse a stream; anything but data, comments and one [DONE] at the end is an error."""
    assert raw.endswith(b"\n\n")
    chunks: list[dict[str, Any]] = []
    done, comments = False, 0
    for event in raw.decode()[:-2].split("\n\n"):
        assert not done, "an event after [DONE]"
        assert "\n" not in event
        if event.startswith(": "):
            comments += 1
            continue
        assert event.startswith("data: ")
        payload = event.removeprefix("data: ")
        done = payload == "[DONE]"
        if not done:
            chunks.append(json.loads(payload, parse_constant=refuse))
    return Events(chunks, done, comments)
