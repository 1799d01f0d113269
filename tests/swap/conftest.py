from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Each swap and fault is logged; formatting that would be most of the work."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These take seconds, so the fast run leaves them out."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
