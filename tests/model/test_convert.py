"""GGUF files become directories that give the same model, tokenizer and chat template."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.model import prepare_model
from core_engine.model.load import load_model
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import lone_logits, token_ids
from tests.model.gguf_file import write_llama


@pytest.fixture
def model() -> Any:
    """A model whose weights bfloat16 holds exactly."""
    model = tiny_model("llama")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    return model


def prepare(path: Path) -> Path:
    return prepare_model(EngineConfig(model=str(path)))


def test_a_converted_model_is_the_same_model(model: Any, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_llama(model, path)
    directory = prepare(path)
    assert directory.is_relative_to(cache)
    converted = load_model(EngineConfig(model=str(path), dtype="float32"), directory)
    prompt = token_ids(20, 1)
    assert torch.allclose(lone_logits(converted, prompt), lone_logits(model, prompt), atol=1e-4)


def test_files_of_a_converted_model(model: Any, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_llama(model, path, chat_template="{{ messages[0]['content'] }}!")
    directory = prepare(path)
    assert json.loads((directory / "config.json").read_text())["eos_token_id"] == 2
    assert json.loads((directory / "generation_config.json").read_text())["eos_token_id"] == 2
    assert (directory / "chat_template.jinja").read_text() == "{{ messages[0]['content'] }}!"
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.encode("a  12<|im_end|>").tokens == ["a", "ĠĠ", "1", "2", "<|im_end|>"]


def test_a_conversion_fills_no_log_with_its_progress(model: Any, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_llama(model, path)
    program = f"from core_engine.model.prepare import prepare; prepare({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "%|" not in done.stderr + done.stdout


def test_a_file_is_converted_once_until_it_changes(model: Any, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_llama(model, path)
    first = prepare(path)
    made = (first / "config.json").stat().st_mtime_ns
    assert prepare(path) == first
    assert (first / "config.json").stat().st_mtime_ns == made
    path.touch()
    assert prepare(path) != first


def test_an_unknown_splitting_rule_is_refused(model: Any, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_llama(model, path, splitting="novel")
    with pytest.raises(ModelError, match="rule 'novel'"):
        prepare(path)
    assert not list((cache / "models").glob("tiny*"))


def test_a_file_that_names_no_rule_is_taken_with_a_warning(
    model: Any, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tiny.gguf"
    write_llama(model, path, splitting=None)
    prepare(path)
    assert "assuming GPT-2's rule" in caplog.text


def test_a_file_that_is_no_gguf(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"something else")
    with pytest.raises(ModelError, match=r"broken\.gguf can't be converted"):
        prepare(path)


def test_a_single_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(ModelError, match=r"not a \.gguf one; for safetensors give the directory"):
        prepare(path)
