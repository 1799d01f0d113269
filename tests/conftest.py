"""What every test run shares: the run without torch, which stays without it, and how hard property tests try."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Models of the tests are tiny; more threads would only get in each other's way. Servers they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Modules are compiled once and not in every run and every server of it, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Servers don't write into the data directory of whoever runs the tests.
_DATA_HOME = tempfile.TemporaryDirectory(prefix="jitney-tests-")
os.environ["XDG_DATA_HOME"] = _DATA_HOME.name

TESTS = Path(__file__).parent
TORCH_DIRECTORIES = ("equivalence", "kernels", "model")
SLOW_DIRECTORIES = ("plugins", "simulation", "swap", "testkit")  # they take seconds: not in the fast run

# A run repeats exactly and never fails for the time it takes; `make test-full` looks further, at random.
for profile, max_examples in (("fast", 10), ("usual", 40), ("many", 300)):
    settings.register_profile(
        profile,
        max_examples=max_examples,
        deadline=None,
        derandomize=profile != "many",
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-torch",
        action="store_true",
        help="leave out what imports torch (for speed), and fail if anything imports it nevertheless",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("fast" if config.getoption("--no-torch") else "usual")


def is_in(path: Path, directories: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(TESTS / directory) for directory in directories)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--no-torch") and is_in(collection_path, TORCH_DIRECTORIES) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_in(item.path, TORCH_DIRECTORIES):
            item.add_marker(pytest.mark.torch)
        if is_in(item.path, SLOW_DIRECTORIES):
            item.add_marker(pytest.mark.slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--no-torch") and "torch" in sys.modules:
        pytest.exit("a test without the mark `torch` imported torch", returncode=1)
