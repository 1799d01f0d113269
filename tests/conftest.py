"""What every test run shares: which tests the fast run leaves out, and how hard property tests try."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer

from core_engine import selection
from core_engine.text.fast import FastEncoder, fast_encoder

# Models of the tests are tiny; more threads would only get in each other's way. Servers they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Servers don't write into the data directory of whoever runs the tests.
_DATA_HOME = tempfile.TemporaryDirectory(prefix="jitney-tests-")
os.environ["XDG_DATA_HOME"] = _DATA_HOME.name

TESTS = Path(__file__).parent
TORCH_PLACES = ("blackbox", "equivalence", "kernels", "model")
SLOW_PLACES = (
    "gateway/test_chat_profile.py",
    "gateway/test_demanded_calls.py",
    "gateway/test_direct.py",
    "gateway/test_forced_calls.py",
    "gateway/test_messages.py",
    "gateway/test_responses.py",
    "gateway/test_structured.py",
    "gateway/test_tool_formats.py",
    "grammars",
    "lab",
    "plugins/test_fair_share.py",
    "plugins/test_gates_compared.py",
    "plugins/test_kv_feedback.py",
    "plugins/test_priority.py",
    "plugins/test_stretch.py",
    "simulation",
    "swap",
    "testkit",
    "telemetry",
    "text/test_detokenize.py",
    "text/test_fast.py",
    "text/test_forgery.py",
)
CLIENT_PLACE = "clients"
# What starts servers, engines and processes, or loads a client. A module that imports one is slow, and so is a test
# with such a fixture.
STARTERS = {"ServerProcess", "StartClient", "checker", "running_gateway", "sdk", "serving"}
NOT_FAST = {"clients", "full", "slow", "torch"}

# A run repeats exactly and never fails for the time it takes; `make test-full` looks further, at random.
for profile, max_examples in (("fast", 5), ("usual", 40), ("many", 300)):
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
        "--fast",
        action="store_true",
        help="leave out what takes seconds or needs torch, and fail if anything imports that nevertheless",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("fast" if config.getoption("--fast") else "usual")


@pytest.fixture(scope="session", autouse=True)
def encoders_by_tokenizer() -> Iterator[None]:
    """The fast encoder of a tokenizer, which thousands of texts are tried for, is made once and not for each model."""
    made: dict[str, FastEncoder | None] = {}

    def remembered(tokenizer: Tokenizer) -> FastEncoder | None:
        description = tokenizer.to_str()
        if description not in made:
            made[description] = fast_encoder(tokenizer)
        return made[description]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core_engine.text.model.fast_encoder", remembered)
        yield


@pytest.fixture(scope="session", autouse=True)
def entry_points_by_path() -> Iterator[None]:
    """Packages are read once, and again after a change of the path or in its folders, not for each of many engines."""
    read = selection._entry_points

    @cache
    def remembered(_: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
        return list(read())

    def looked_up() -> list[EntryPoint]:
        return remembered(tuple((place, Path(place).stat().st_mtime_ns) for place in sys.path if Path(place).exists()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_entry_points", looked_up)
        yield


def is_in(path: Path, *places: str) -> bool:
    return any(path.is_relative_to(TESTS / place) for place in places)


def names_starter(path: Path) -> bool:
    """Whether no test of a file can be fast, known without importing it and the servers it starts."""
    return path.name.startswith("test_") and not STARTERS.isdisjoint(re.findall(r"(?<![.\w])\w+", path.read_text()))


def starts_something(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    return not STARTERS.isdisjoint([*vars(item.module), *item.fixturenames])


def pytest_collection_finish() -> None:
    gc.freeze()  # Modules and tests stay: the collector need not look at them again and again.


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--fast"):
        return None
    left_out = is_in(collection_path, *TORCH_PLACES, *SLOW_PLACES, CLIENT_PLACE)
    return True if left_out or names_starter(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_in(item.path, *TORCH_PLACES, CLIENT_PLACE):
            item.add_marker(pytest.mark.torch)
        if is_in(item.path, CLIENT_PLACE):
            item.add_marker(pytest.mark.clients)
        if is_in(item.path, *SLOW_PLACES) or starts_something(item):
            item.add_marker(pytest.mark.slow)
    if config.getoption("--fast"):
        slow = {item for item in items if not NOT_FAST.isdisjoint(mark.name for mark in item.iter_markers())}
        config.hook.pytest_deselected(items=list(slow))
        items[:] = [item for item in items if item not in slow]


def pytest_runtest_teardown(item: pytest.Item) -> None:
    if item.config.getoption("--fast") and "torch" in sys.modules:
        pytest.fail("this test, or one before it in its process, imported torch without the mark `torch`")
