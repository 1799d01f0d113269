from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Each swap and fault is logged; formatting that would be most of the work."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
