"""The kernels interpreted on the CPU (through `tests/kernels/test_triton.py`), or as they are where there is a GPU.

TRITON_INTERPRET=1 .venv/bin/pytest tests/kernels/triton/test_attention.py
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

collect_ignore = []
if find_spec("triton") is None:
    collect_ignore = ["test_attention.py", "test_operators.py", "test_compiled.py"]
elif INTERPRETED:
    from tests.kernels.triton.interpreter import mend

    mend()
    collect_ignore = ["test_compiled.py"]
elif not torch.cuda.is_available():
    collect_ignore = ["test_attention.py", "test_operators.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cpu" if INTERPRETED else "cuda")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the interpreter computes by numpy warns of overflow and of what isn't a number, as a GPU doesn't."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))
