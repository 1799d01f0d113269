"""A model with random weights can be served: it loads, its text is text, and its weights are held about once."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.lab.random_model import Shape, write_random_model
from core_engine.request import SamplingParams
from core_engine.text import load_text_model
from gateway.cli import main

SHAPE = Shape(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=128,
    vocab_size=512,
)


def test_a_random_model_generates_text(tmp_path: Path) -> None:
    write_random_model(SHAPE, tmp_path / "random")
    engine = Engine.load(EngineConfig(model=str(tmp_path / "random"), kv_memory_bytes=1 << 20, dtype="float32"))
    text = load_text_model(tmp_path / "random")
    prompt = text.encode("Grüße, 東京!")
    assert text.decode(prompt) == "Grüße, 東京!"
    (tokens,) = engine.generate([prompt], SamplingParams(max_tokens=8, ignore_eos=True))
    assert len(tokens) == 8
    assert engine.info.vocab_size == SHAPE.vocab_size


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = CliRunner().invoke(main, ["bench", "make-model", "1.1b", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.stderr
