"""One streamed completion, with the time of every piece."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx


@dataclass(slots=True)
class Timeline:
    """What a client saw of one request; times in seconds of the monotonic clock."""

    sent: float
    num_output_tokens: int
    arrivals: list[float] = field(default_factory=list)  # of pieces with text
    text: str = ""
    ended: float = 0.0
    error: str | None = None

    @property
    def time_to_first_token(self) -> float:
        """From sending to the first piece."""
        return self.arrivals[0] - self.sent

    @property
    def time_per_output_token(self) -> float:
        """From the first piece to the last, per token in between."""
        return (self.arrivals[-1] - self.arrivals[0]) / max(1, self.num_output_tokens - 1)

    @property
    def gaps(self) -> list[float]:
        """Seconds between one piece and the next."""
        return [later - earlier for earlier, later in pairwise(self.arrivals)]


async def complete(
    client: httpx.AsyncClient,
    prompt: list[int],
    num_output_tokens: int,
    *,
    key: str | None = None,
    timeline: Timeline | None = None,
    **fields: Any,
) -> Timeline:
    """Ask for exactly that many tokens after the prompt, greedily unless `fields` say otherwise.

    An error, of whatever kind, is in the Timeline. One that is given is filled while the answer comes.
    """
    body = {
        "model": fields.pop("model"),
        "prompt": prompt,
        "max_tokens": num_output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "skip_special_tokens": False,  # so that every token is seen when it comes
        "stream": True,
        **fields,
    }
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    timeline = timeline or Timeline(0.0, num_output_tokens)
    timeline.sent = time.perf_counter()
    done = False
    try:
        async with client.stream("POST", "/v1/completions", json=body, headers=headers) as response:
            if response.status_code != 200:
                timeline.error = f"{response.status_code}: {(await response.aread())[:200]!r}"
                return timeline
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    _take_in(timeline, json.loads(line.removeprefix("data: ")))
    except httpx.HTTPError as error:
        timeline.error = repr(error)
    timeline.ended = time.perf_counter()
    if not done and timeline.error is None:
        timeline.error = "the stream ended without [DONE]"
    return timeline


def _take_in(timeline: Timeline, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        timeline.error = str(chunk["error"])
    for choice in chunk.get("choices", ()):
        if choice["text"]:
            timeline.arrivals.append(time.perf_counter())
            timeline.text += choice["text"]
