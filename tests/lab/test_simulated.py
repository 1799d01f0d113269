from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from core_engine.clock import MonotonicClock, VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.errors import IntegrityError, ModelError
from core_engine.executor import Batch
from core_engine.lab.simulated import SimulatedModel, load_simulated
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from tests.support.tiny_model import write_tiny_model

FREE = {"base_seconds": 0, "row_seconds": 0, "attention_pair_seconds": 0, "kv_token_seconds": 0, "empty_seconds": 0}


class TestTime:
    model = SimulatedModel(
        base_seconds=1.0, row_seconds=0.1, attention_pair_seconds=0.01, kv_token_seconds=0.001, empty_seconds=7.0
    )

    def seconds(self, *rows: tuple[int, int], idle_rows: int = 0) -> float:
        batch = Batch(1, 16, idle_rows=idle_rows)
        batch.num_query_tokens = [queries for queries, _ in rows]
        batch.num_kv_tokens = [keys for _, keys in rows]
        batch.token_ids = [0] * sum(batch.num_query_tokens)
        return self.model.seconds(batch)

    def test_counts_rows_pairs_and_keys(self) -> None:
        # Queries of the chunk see 9, 10 and 11 keys.
        assert self.seconds((3, 11), (1, 20)) == pytest.approx(1 + 0.1 * 4 + 0.01 * (9 + 10 + 11 + 20) + 0.001 * 31)

    def test_idle_rows_cost_as_rows(self) -> None:
        assert self.seconds((1, 1), idle_rows=5) == pytest.approx(1 + 0.6 + 0.01 + 0.001)

    def test_an_empty_batch_costs_a_fixed_time(self) -> None:
        assert self.seconds() == 7.0

    def test_a_period_is_a_pace_whatever_happens_in_between(self) -> None:
        engine, clock = simulated_engine(model=SimulatedModel(**FREE, period_seconds=1.0))
        params = SamplingParams(temperature=0, max_tokens=5)
        engine.submit(Request(id="a", model="simulated", prompt_token_ids=[1], sampling=params))
        ends = []
        for seconds_in_between in (0.0, 0.25, 0.75, 5.0, 0.5):
            clock.advance(seconds_in_between)
            engine.step()
            ends.append(clock.now())
        assert ends == [1.0, 2.0, 3.0, 8.0, 9.0]  # who is late by more than one starts a new count


class TestTokens:
    def texts(self, *sampling: SamplingParams, prompts: list[list[int]] | None = None, **model: Any) -> list[list[int]]:
        engine, _ = simulated_engine(model=SimulatedModel(**model))
        prompts = prompts or [[1, 2, 3]] * len(sampling)
        for index, (prompt, params) in enumerate(zip(prompts, sampling, strict=True)):
            engine.submit(Request(id=str(index), model="simulated", prompt_token_ids=prompt, sampling=params))
        texts: dict[str, list[int]] = {}
        while engine.has_work:
            for piece in engine.step().outputs:
                texts.setdefault(piece.request_id, []).extend(piece.token_ids)
        return [texts[str(index)] for index in range(len(sampling))]

    def test_greedy_depends_on_the_prompt_alone(self) -> None:
        greedy = SamplingParams(temperature=0, max_tokens=8)
        first, again, other = self.texts(greedy, greedy, greedy, prompts=[[1, 2], [1, 2], [1, 3]])
        assert first == again != other

    def test_sampling_depends_on_the_seed(self) -> None:
        def seeded(seed: int) -> SamplingParams:
            return SamplingParams(temperature=1.0, seed=seed, max_tokens=8)

        first, again, other = self.texts(seeded(1), seeded(1), seeded(2))
        assert first == again != other

    def test_no_end_of_sequence_unless_configured(self) -> None:
        long = SamplingParams(temperature=0, max_tokens=600)
        assert 999 not in self.texts(long)[0]
        ended = self.texts(long, eos_probability=0.1)[0]
        assert ended[-1] == 999
        assert len(ended) < 200

    def test_logprobs_for_those_who_asked(self) -> None:
        engine, _ = simulated_engine()
        for name, logprobs in (("none", None), ("own", 0), ("rivals", 3)):
            params = SamplingParams(temperature=0, max_tokens=1, logprobs=logprobs)
            engine.submit(Request(id=name, model="simulated", prompt_token_ids=[1], sampling=params))
        pieces = {piece.request_id: piece for piece in engine.step().outputs}
        assert pieces["none"].logprobs is None
        own, rivals = pieces["own"].logprobs, pieces["rivals"].logprobs
        assert own is not None
        assert own[0].top == []
        assert rivals is not None
        assert rivals[0].top[0] == (pieces["rivals"].token_ids[0], rivals[0].logprob)
        assert len(rivals[0].top) == 3
        assert [p for _, p in rivals[0].top] == sorted((p for _, p in rivals[0].top), reverse=True)


@pytest.mark.parametrize("verify", [True, False])
def test_batches_are_verified_unless_told_otherwise(verify: bool) -> None:
    engine, _ = simulated_engine(model=SimulatedModel(verify=verify))
    batch = Batch(1, block_size=99)
    if verify:
        with pytest.raises(IntegrityError, match="block size 99"):
            engine._executor.submit(batch)
    else:
        assert engine._executor.collect(engine._executor.submit(batch)).token_ids == []


class TestLoading:
    def config(self, directory: Path, **options: Any) -> EngineConfig:
        return EngineConfig(model=str(directory), executor="simulated", **options)

    def test_from_a_directory_serves_without_torch_or_sleep(self, tmp_path: Path) -> None:
        write_tiny_model(tmp_path, config={"simulated": FREE})
        engine = Engine.load(self.config(tmp_path), clock=MonotonicClock())
        texts = engine.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=200, ignore_eos=True))
        assert len(texts[0]) == 200

    def test_the_shape_is_the_models(self, tmp_path: Path) -> None:
        path = tmp_path / "toy"
        path.mkdir()
        describe(path, eos_token_id=[3, 4], simulated={"eos_probability": 0.5})
        config = self.config(path, kv_memory_bytes=1 << 20, block_size=16, max_model_len=100)
        spec = load_simulated(config, path, VirtualClock()).spec
        assert (spec.name, spec.architecture, spec.vocab_size, spec.max_model_len) == ("toy", "llama", 500, 100)
        assert spec.kv_bytes_per_token == 2 * 3 * 2 * 8 * 4
        assert spec.num_blocks == (1 << 20) // (384 * 16)
        assert spec.eos_token_ids == (3, 4)

    def test_a_directory_without_a_model_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"config\.json"):
            load_simulated(self.config(tmp_path), tmp_path)

    def test_a_description_that_lacks_something_is_refused(self, tmp_path: Path) -> None:
        describe(tmp_path, vocab_size=None)
        with pytest.raises(ModelError, match="vocab_size"):
            load_simulated(self.config(tmp_path), tmp_path)

    def test_a_cost_below_zero_is_refused(self, tmp_path: Path) -> None:
        describe(tmp_path, simulated={"row_seconds": -1})
        with pytest.raises(ModelError, match="row_seconds"):
            load_simulated(self.config(tmp_path), tmp_path)

    def test_memory_for_less_than_a_block_is_refused(self, tmp_path: Path) -> None:
        describe(tmp_path)
        with pytest.raises(ModelError, match="100 bytes"):
            load_simulated(self.config(tmp_path, kv_memory_bytes=100), tmp_path)


def describe(directory: Path, **fields: Any) -> None:
    """Write the description of a small model, with these fields beside or instead of the usual ones."""
    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    description = {"model_type": "llama", "vocab_size": 500, "max_position_embeddings": 1000, **shape, **fields}
    (directory / "config.json").write_bytes(msgspec.json.encode(description))
