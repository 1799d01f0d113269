"""Engine processes on a simulated model, each stopped at the end of its test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core_engine import EngineClient, EngineConfig, Patience
from tests.support.tiny_model import write_tiny_model

QUICK = {"base_seconds": 0.0, "row_seconds": 0.0, "attention_pair_seconds": 0.0, "kv_token_seconds": 0.0}
UNHURRIED = {**QUICK, "base_seconds": 0.005}

StartClient = Callable[..., Awaitable[EngineClient]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose iterations take some milliseconds, so that things can happen meanwhile."""
    return write_tiny_model(tmp_path / "tiny", config={"simulated": UNHURRIED})


@pytest.fixture
def quick_model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "quick", config={"simulated": QUICK})


@pytest.fixture
def socket_directories(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where engines keep their sockets, for this test alone."""
    # Unix limits the length of a socket's path; pytest's own directories are too deep for it.
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@pytest.fixture
async def start_client() -> AsyncIterator[StartClient]:
    clients: list[EngineClient] = []

    async def start(model: Path | str, *, patience: Patience | None = None, **options: Any) -> EngineClient:
        max_unanswered = options.pop("max_unanswered", 1024)
        config = EngineConfig(model=str(model), executor="simulated", seed=1, **options)
        client = EngineClient(config, max_unanswered=max_unanswered, patience=patience)
        clients.append(client)
        await client.start()
        return client

    yield start
    for client in clients:
        await client.stop()
