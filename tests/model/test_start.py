"""load_executor: phases, facts about the model, memory, refusals at load."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.model import facts, memory
from core_engine.model.load import Assembly
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import build_executor
from tests.model.loading import MakeDirectory, load

BYTES_PER_TOKEN = 3 * 2 * 2 * 16 * 4  # layers, keys and values, heads, elements, float32


def test_phases_in_order(model_directory: MakeDirectory, cache: Path) -> None:
    phases: list[str] = []
    load(model_directory(), phases)
    assert phases == ["import", "load", "kv", "probe", "warm-up"]


def test_facts(model_directory: MakeDirectory, cache: Path) -> None:
    spec = load(model_directory(), served_model_name=None).spec
    assert (spec.name, spec.architecture, spec.dtype, spec.device) == (
        "tiny-llama", "LlamaForCausalLM", "float32", "cpu",
    )  # fmt: skip
    assert (spec.vocab_size, spec.max_model_len, spec.block_size) == (128, 256, 32)
    assert spec.kv_bytes_per_token == BYTES_PER_TOKEN
    assert spec.num_blocks == (1 << 20) // (BYTES_PER_TOKEN * 32)
    assert spec.eos_token_ids == (2,)
    layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96
    assert spec.row_flops == 2 * 3 * layer
    assert spec.attention_flops == 3 * 4 * (16 + 16) * 2
    assert spec.max_lone_prompt_tokens == 256


def test_the_served_name_can_be_given(model_directory: MakeDirectory, cache: Path) -> None:
    assert load(model_directory(), served_model_name="mine").spec.name == "mine"


def test_what_the_log_says_of_memory(
    model_directory: MakeDirectory, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="jitney.model"):
        load(model_directory())
    (line,) = [record.getMessage() for record in caplog.records if "keys and values" in record.getMessage()]
    assert line == (
        "keys and values: 42 blocks of 32 tokens, 1,344 tokens in all, 768 bytes per token; longest context 256 tokens"
    )


def test_packed_heads_of_experts_count_by_their_share() -> None:
    model = tiny_model("mixtral")
    attention = 2 * 64 * 64 + 2 * 64 * 32
    used_experts = 2 * 3 * 64 * 96
    router = 64 * 4
    assert facts.row_flops(model) == 2 * 3 * (attention + used_experts + router)


# Lengths.


def test_the_shorter_of_two_limits_holds(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model("llama")
    assert facts.max_model_len(model.config, EngineConfig(max_model_len=100)) == 100
    assert not caplog.records
    assert facts.max_model_len(model.config, EngineConfig(max_model_len=1000)) == 256
    assert "beyond the model's own 256" in caplog.text


def test_sequences_stay_below_where_long_rope_would_change_their_neighbours() -> None:
    model_config = tiny_model("phi3").config
    factors = [1.0] * 8
    model_config.rope_parameters = {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": factors, "long_factor": factors,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    assert facts.max_model_len(model_config, EngineConfig()) == 64


# Memory.


def test_kv_memory_in_bytes_wins() -> None:
    config = EngineConfig(kv_memory_bytes=10_000, kv_memory_fraction=0.9, block_size=8)
    assert memory.num_kv_blocks(config, 100, 1000, torch.device("cpu")) == 12


def test_a_fraction_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1_000_000)
    config = EngineConfig(kv_memory_fraction=0.5, block_size=10)
    assert memory.num_kv_blocks(config, 100, 1000, torch.device("cpu")) == 500


@pytest.mark.parametrize("options", [{"kv_memory_fraction": 0.5}, {}])
def test_engines_that_share_memory_divide_the_fraction(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, float]
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10_000_000)
    alone, shared = (
        memory.num_kv_blocks(EngineConfig(memory_sharers=sharers, **options), 100, 10**6, torch.device("cpu"))  # type: ignore[arg-type]
        for sharers in (1, 4)
    )
    assert alone // 4 == shared
    fixed = EngineConfig(kv_memory_bytes=40_000, memory_sharers=4)
    assert memory.num_kv_blocks(fixed, 100, 1000, torch.device("cpu")) == 12


def test_by_default_no_more_than_the_sequences_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 40)
    config = EngineConfig(block_size=10, sequence_limit=4)
    assert memory.num_kv_blocks(config, 100, 95, torch.device("cpu")) == 40


def test_too_little_memory_for_two_blocks() -> None:
    config = EngineConfig(kv_memory_bytes=1000, block_size=8)
    with pytest.raises(ModelError, match=r"kv_memory_bytes gives 1,000 bytes.*needs 800 a block"):
        memory.num_kv_blocks(config, 100, 1000, torch.device("cpu"))


def test_more_memory_than_is_free_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1_000_000)
    with pytest.raises(ModelError, match=r"kv_memory_bytes asks for 1,000,001 bytes .* only 1,000,000 are free"):
        memory.num_kv_blocks(EngineConfig(kv_memory_bytes=1_000_001), 100, 1000, torch.device("cpu"))


def test_memory_that_is_free() -> None:
    assert 1 << 20 < memory.free_bytes(torch.device("cpu")) < 1 << 50


def test_a_container_leaves_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 400000\ninactive_file 200000\n")
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    assert memory.free_bytes(torch.device("cpu")) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes(torch.device("cpu")) > 500_000


# Refusals that only the model itself shows.


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("mamba", "none of its layers attends"),
        ("bloom", "none of its layers attends"),
        ("bert", "doesn't attend causally"),
        ("inkling_text", "passes position_bias to attention"),
        ("recurrent_gemma", "only 1 of its 3 layers attend"),
    ],
)
def test_models_that_attend_otherwise(model_type: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        build_executor(tiny_model(model_type))


def test_a_cuda_device_that_is_not_there(model_directory: MakeDirectory, cache: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ModelError, match="device 'cuda' was asked for"):
        load(model_directory(), device="cuda")


def test_weights_that_cannot_be_read(model_directory: MakeDirectory, cache: Path) -> None:
    directory = model_directory()
    (directory / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match="can't be loaded by transformers"):
        load(directory)


def test_torch_alone_serves_every_shape() -> None:
    config = EngineConfig(block_size=8, kv_memory_bytes=1 << 20, kernels=("torch",))
    assert Assembly(tiny_model("llama"), config).executor("x").kernel_names == ["torch"]
