"""Settings of the property tests; for many more examples: `pytest tests/simulation --hypothesis-profile=many`."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("few", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "many", max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Hostile policies are logged at every fault; formatting that would be most of the work."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
