"""What clients of structured output ask a model for that knows nothing: only the server can hold it to that."""

from __future__ import annotations

from typing import Any


def check_shirts(answers: list[Any], count: int) -> None:
    """Assert that there are so many answers, each a record as the clients' scripts describe it."""
    assert len(answers) == count
    for answer in answers:
        assert set(answer) == {"colour", "size", "clean"}
        assert answer["colour"] in {"red", "blue"}
        assert answer["size"] in range(30, 61)
        assert answer["clean"] in {True, False}
