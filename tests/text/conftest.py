"""Tiny models with the two kinds of tokenizers, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_engine.text import TextModel, load_text_model
from tests.support.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp("byte_level"), kind="byte_level"))


@pytest.fixture(scope="session")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp("metaspace"), kind="metaspace"))


@pytest.fixture(params=["byte_level", "metaspace"])
def model(request: pytest.FixtureRequest) -> TextModel:
    loaded = request.getfixturevalue(request.param)
    assert isinstance(loaded, TextModel)
    return loaded


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "model"
