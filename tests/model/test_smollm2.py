"""The default model for real: its files after conversion, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.executor import Executor
from core_engine.model import load_executor

PROMPT = "The capital of France is"
CHAT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def tokenizer(smollm2_directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2_directory / "tokenizer.json"))


@pytest.fixture(scope="module", params=["float32", "auto"])
def executor(smollm2_directory: Path, request: pytest.FixtureRequest) -> Executor:
    config = EngineConfig(dtype=request.param, kv_memory_bytes=64 << 20, token_limit=64)
    return load_executor(config, smollm2_directory)


def read(directory: Path, name: str) -> dict:
    return json.loads((directory / name).read_text())


def test_files(smollm2_directory: Path) -> None:
    config = read(smollm2_directory, "config.json")
    assert (config["model_type"], config["num_hidden_layers"], config["hidden_size"]) == ("llama", 30, 576)
    assert read(smollm2_directory, "generation_config.json")["eos_token_id"] == 2
    assert "<|im_start|>assistant" in (smollm2_directory / "chat_template.jinja").read_text()
    with safe_open(smollm2_directory / "model.safetensors", framework="pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118


def test_tokenizer(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_to_id("<|im_end|>") == 2
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.encode("a  1").tokens == ["a", "ĠĠ", "1"]  # not "Ġ", "Ġ1"
    assert tokenizer.encode("in 2024").tokens == ["in", "Ġ", "2", "0", "2", "4"]
    text = "Fünf 5 €  \n\tπ 🚌!"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_it_knows_the_capital_of_france(executor: Executor, tokenizer: Tokenizer) -> None:
    driver = HandDriver(executor.spec)
    sequences = [driver.sequence(tokenizer.encode(text).ids) for text in (PROMPT, CHAT)]
    for _ in range(8):
        batch = driver.bind([(sequence, sequence.num_pending_tokens) for sequence in sequences])
        driver.advance(batch, executor.collect(executor.submit(batch)))
    completion, answer = (tokenizer.decode(s.token_ids[s.num_prompt_tokens :]) for s in sequences)
    assert completion.startswith(" Paris")
    assert "Paris" in answer
    assert executor.spec.eos_token_ids == (2,)
    assert 2 in sequences[1].token_ids[sequences[1].num_prompt_tokens :]
