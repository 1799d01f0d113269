"""Servers as a client finds them: a real model with random weights, in float32 so that texts can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.blackbox.client import Client
from tests.support.server import ServerProcess, serving
from tests.support.tiny_model import write_tiny_model

# Wide weights make the next token clear-cut: texts don't hang on the last bits of a sum.
WEIGHTS = {"initializer_range": 0.3}


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small Llama."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    directory = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny", config=WEIGHTS)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> Iterator[ServerProcess]:
    """For tests that leave it as well as they found it."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(log, "--model", str(weights), "--dtype", "float32", "--threads", "1") as running:
        yield running


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[Client]:
    with server.client() as http:
        yield Client(http, server.model)


@pytest.fixture(scope="session")
def sdk(server: ServerProcess) -> Iterator[openai.OpenAI]:
    """The official SDK, told not to hide failures behind retries."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as sdk:
        yield sdk
