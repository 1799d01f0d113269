"""A tiny text model, and one gateway for all tests that don't need settings of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from core_engine.text import TextModel, load_text_model
from tests.gateway.running import RunningGateway, running_gateway
from tests.support.tiny_model import write_tiny_model

if TYPE_CHECKING:
    import openai


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny"))


@pytest.fixture(scope="session")
def shared_gateway(text_model: TextModel) -> Iterator[RunningGateway]:
    with running_gateway(text_model) as running:
        yield running


@pytest.fixture(scope="session")
def thinking(text_model: TextModel) -> Iterator[RunningGateway]:
    """One whose operator says that the model reasons."""
    with running_gateway(text_model, {"reasoning_parser": "think"}) as running:
        yield running


@pytest.fixture
def server(shared_gateway: RunningGateway) -> RunningGateway:
    """The shared gateway with an engine that says "Hi." and remembers nothing of earlier tests."""
    engine = shared_gateway.engine
    engine.state = "ready"
    engine.script = shared_gateway.saying("Hi.")
    for record in (engine.submitted, engine.cancelled, engine.running):
        record.clear()
    shared_gateway.gateway.draining = False
    return shared_gateway


@pytest.fixture
def sdk(server: RunningGateway) -> Iterator[openai.OpenAI]:
    from tests.gateway.respond import client_of  # which takes long to import

    with client_of(server) as client:
        yield client
