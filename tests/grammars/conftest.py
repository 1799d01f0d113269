"""Tiny models of both kinds of tokenizers, with their vocabularies as the library takes them."""

from __future__ import annotations

import pytest
from llguidance import LLTokenizer

from core_engine.grammars.vocabulary import Vocabulary
from core_engine.text import TextModel, load_text_model
from tests.support.tiny_model import write_tiny_model

PADDING = 9  # rows of a model's vocabulary that its tokenizer doesn't know


@pytest.fixture(scope="session", params=["byte_level", "metaspace"])
def text_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp(request.param), kind=request.param))


@pytest.fixture(scope="session")
def tokenizer(text_model: TextModel) -> LLTokenizer:
    return Vocabulary.of(text_model, text_model.vocab_size + PADDING, text_model.eos_token_ids).prepare()
