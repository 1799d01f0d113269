"""Endpoint: what the document says of one method of one path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

# Before any endpoint is asked: invalid HTTP, pages of other origins, slow and large headers; and a fault of our own.
ANYWHERE = (400, 403, 408, 431, 500)
# Of every body: too large, of another kind; and large ones wait for a thread, in a bounded queue.
OF_BODIES = (413, 415, 429)

Access = Literal["key", "admin_key", "open"]


@dataclass(frozen=True, slots=True)
class Content:
    """A body with an example. `events` is what each event of a stream carries."""

    type: Any
    example: Any
    media_type: str = "application/json"
    events: Any = None


@dataclass(frozen=True, slots=True, init=False)
class Answer:
    """An answer that is not the envelope of an error."""

    description: str
    contents: tuple[Content, ...]

    def __init__(self, description: str, *contents: Content) -> None:
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "contents", contents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One operation; `errors` are the statuses that it answers besides those of its kind.

    `query` has a field for each parameter of the query.
    """

    method: Literal["get", "post", "delete"]
    path: str
    also_at: str | None = None
    name: str
    family: str
    summary: str
    description: str = ""
    access: Access = "key"
    query: type[msgspec.Struct] | None = None
    request: Content | None = None
    answers: Mapping[int, Answer]
    errors: tuple[int, ...] = ()

    @property
    def statuses_of_errors(self) -> list[int]:
        """Every status that comes with the envelope of an error."""
        of_key = () if self.access == "open" else (401,)
        of_body = () if self.request is None else OF_BODIES
        return sorted({*ANYWHERE, *of_key, *of_body, *self.errors})

    @property
    def types(self) -> list[Any]:
        """All that its bodies are made of."""
        contents = [content for answer in self.answers.values() for content in answer.contents]
        if self.request is not None:
            contents.append(self.request)
        return [kind for content in contents for kind in (content.type, content.events) if kind is not None]
