"""What the tests of the model half share: tiny models on disk, a cache of their own, and the real default model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from core_engine.config import EngineConfig
from core_engine.model import prepare_model
from tests.equivalence.families import tiny_model


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return directory / "jitney"


@pytest.fixture
def model_directory(tmp_path: Path) -> Callable[..., Path]:
    """Makes directories as models come in, by model type."""

    def make(model_type: str = "llama", *, tokenizer: bool = True) -> Path:
        directory = tmp_path / f"tiny-{model_type}"
        tiny_model(model_type).save_pretrained(directory)
        if tokenizer:
            tiny_tokenizer().save(str(directory / "tokenizer.json"))
        return directory

    return make


def tiny_tokenizer() -> Tokenizer:
    vocabulary = {chr(33 + i): i for i in range(90)} | {"Ġ": 90}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


@pytest.fixture(scope="session")
def smollm2_directory() -> Path:
    """The default model, fetched and converted into the user's cache the first time."""
    return prepare_model(EngineConfig())
