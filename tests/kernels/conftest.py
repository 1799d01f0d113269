"""Libraries of every instruction set that this processor runs, and one thread as in the other model tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from contrib_kernels.cpu.build import BuildError, Variant, build, usable_variants
from contrib_kernels.cpu.library import Library


@pytest.fixture(params=usable_variants(), ids=lambda variant: variant.name, scope="session")
def library(request: pytest.FixtureRequest) -> Library:
    variant: Variant = request.param
    try:
        return Library(build(variant))
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Work is shared out, as it is in earnest."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
