"""The engine's edge: how requests end, by themselves, by cancellation or by failure, and what is told."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.errors import EngineUnavailable
from core_engine.executor import Batch, BatchResult
from core_engine.lab.simulated import SimulatedModel
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from tests.engine.test_iterations import make_request, run, with_recorder


def with_sampling(name: str, **sampling: Any) -> Request:
    return Request(
        id=name,
        model="simulated",
        prompt_token_ids=[5, 6, 7],
        sampling=SamplingParams(**{"temperature": 0, **sampling}),
    )


class TestEnds:
    def ends(self, eos_probability: float = 0.0, **sampling: Any) -> tuple[list[int], str, int | None]:
        engine, _ = simulated_engine(model=SimulatedModel(eos_probability=eos_probability))
        engine.submit(with_sampling("a", **sampling))
        pieces = []
        while engine.has_work:
            pieces += engine.step().outputs
        assert pieces[-1].finish_reason is not None
        return [t for piece in pieces for t in piece.token_ids], pieces[-1].finish_reason, pieces[-1].stop_token_id

    def test_at_max_tokens(self) -> None:
        token_ids, reason, stop = self.ends(max_tokens=6)
        assert (len(token_ids), reason, stop) == (6, "length", None)

    def test_at_the_end_of_sequence(self) -> None:
        assert self.ends(1.0, max_tokens=6) == ([999], "stop", 999)

    def test_not_at_the_end_of_sequence_when_that_is_ignored(self) -> None:
        assert self.ends(1.0, max_tokens=3, ignore_eos=True) == ([999] * 3, "length", None)

    def test_not_before_min_tokens(self) -> None:
        token_ids, reason, _ = self.ends(1.0, max_tokens=9, min_tokens=4)
        assert (len(token_ids), token_ids[-1], reason) == (5, 999, "stop")

    def test_at_a_stop_token(self) -> None:
        free, _, _ = self.ends(max_tokens=6)
        assert self.ends(max_tokens=6, stop_token_ids=(free[2],)) == (free[:3], "stop", free[2])

    def test_a_stop_as_the_last_token_is_a_stop(self) -> None:
        free, _, _ = self.ends(max_tokens=6)
        assert self.ends(max_tokens=6, stop_token_ids=(free[5],)) == (free, "stop", free[5])


class TestCancellation:
    def test_of_a_running_request_frees_its_blocks_in_that_step(self) -> None:
        engine, _ = with_recorder(num_blocks=10)
        engine.submit(make_request("a", prompt=40, output=50))
        engine.step()
        assert engine.state.num_free_blocks < 10
        engine.cancel("a")
        output = engine.step()
        assert [(o.request_id, o.finish_reason) for o in output.finished] == [("a", "cancelled")]
        assert output.outputs == []
        assert engine.state.num_free_blocks == 10
        assert not engine.has_work

    def test_of_a_waiting_request(self) -> None:
        engine, _ = with_recorder(sequence_limit=1)
        for name in "ab":
            engine.submit(make_request(name, output=3))
        engine.step()
        engine.cancel("b")
        simulation = run(engine)
        assert simulation.iterations == 2
        assert engine.state.num_waiting == 0

    def test_before_it_was_looked_at(self) -> None:
        engine, _ = with_recorder()
        engine.submit(make_request("a"))
        engine.cancel("a")
        output = engine.step()
        assert (output.accepted, output.rejected, output.outputs) == ([], [], [])
        assert not engine.has_work

    def test_of_strangers_and_twice_is_nothing(self) -> None:
        engine, _ = with_recorder()
        engine.submit(make_request("a", output=3))
        engine.step()
        for name in ("nobody", "a", "a"):
            engine.cancel(name)
        assert [o.request_id for o in engine.step().finished] == ["a"]
        engine.cancel("a")
        assert engine.step().finished == []

    def test_all_sequences_of_the_request_end(self) -> None:
        engine, _ = with_recorder(sequence_limit=2)
        engine.submit(make_request("a", output=9, n=4))
        engine.step()
        engine.cancel("a")
        assert [o.request_id for o in engine.step().finished] == ["a"]
        assert (engine.state.running, engine.state.num_waiting, engine.state.num_free_blocks) == ([], 0, 64)


def test_n_sequences_end_as_one_request() -> None:
    engine, _ = with_recorder(sequence_limit=2)
    simulation = run(engine, make_request("a", prompt=10, output=5, n=5))
    assert {key: len(tokens) for key, tokens in simulation.token_ids.items()} == {("a", i): 5 for i in range(5)}
    assert simulation.outcomes["a"].num_output_tokens == 25
    assert simulation.outcomes["a"].num_prompt_tokens == 10


class Faulty:
    """An executor that fails now and then, around a real one."""

    def __init__(self, engine: Engine) -> None:
        self._inner = engine._executor
        self.spec = self._inner.spec
        self.raises = False
        self.failed_rows: dict[int, str] = {}
        engine._executor = self

    def submit(self, batch: Batch) -> object:
        if self.raises:
            raise RuntimeError("out of memory")
        return self._inner.submit(batch)

    def collect(self, handle: object) -> BatchResult:
        result = self._inner.collect(handle)
        result.failed_rows = self.failed_rows
        return result


class TestFailure:
    def test_of_an_execution_ends_its_own_requests_and_no_others(self) -> None:
        engine, _ = with_recorder(sequence_limit=2)
        executor = Faulty(engine)
        for name in "abc":
            engine.submit(make_request(name, output=3))
        executor.raises = True
        output = engine.step()
        assert {o.request_id: o.finish_reason for o in output.finished} == {"a": "error", "b": "error"}
        assert all(piece.error for piece in output.outputs)
        executor.raises = False
        simulation = run(engine)
        assert simulation.token_ids.keys() == {("c", 0)}
        assert engine.state.num_free_blocks == 64

    def test_again_and_again_goes_up(self) -> None:
        engine, _ = with_recorder()
        Faulty(engine).raises = True
        for i in range(100):
            engine.submit(make_request(f"r{i}"))
        engine.step()
        with pytest.raises(RuntimeError, match="out of memory"):
            run(engine)

    def test_of_one_row_ends_that_request_alone(self) -> None:
        engine, _ = with_recorder()
        executor = Faulty(engine)
        executor.failed_rows = {1: "logits are not finite"}
        for name in "abc":
            engine.submit(make_request(name, output=1))
        output = engine.step()
        assert {o.request_id: o.finish_reason for o in output.finished} == {"a": "length", "b": "error", "c": "length"}
        assert [(p.request_id, p.token_ids, p.error) for p in output.outputs if p.error] == [
            ("b", [], "logits are not finite")
        ]

    def test_is_never_held_back(self) -> None:
        engine, _ = with_recorder("static_batch")
        executor = Faulty(engine)
        for name in "ab":
            engine.submit(make_request(name, output=9))
        assert engine.step().outputs == []
        executor.failed_rows = {0: "broken"}
        output = engine.step()
        assert [o.request_id for o in output.finished] == ["a"]
        assert {p.request_id for p in output.outputs} == {"a", "b"}


class TestNumbers:
    def test_counters_of_a_run_add_up(self) -> None:
        engine, _ = with_recorder("paged:headroom=0", num_blocks=8, block_size=8)
        wanted = [make_request(name, prompt=14, output=30) for name in "abc"]
        for request in wanted:
            engine.submit(request)
        stats = []
        while engine.has_work:
            output = engine.step()
            assert output.stats is not None
            stats.append(output.stats)
        computed = sum(s.prefill_tokens + s.decode_tokens for s in stats)
        assert computed >= 3 * (14 + 29)
        assert sum(s.preemptions for s in stats) == engine.state.num_preemptions > 0
        assert sum(s.memory_shortages.get("next_block", 0) for s in stats) > 0
        assert [s.iteration for s in stats] == list(range(1, len(stats) + 1))
        assert all(0 <= s.prefill_compute_share <= 1 and s.blocks_total == 8 for s in stats)
        assert all(s.idle_gap_seconds is None or s.idle_gap_seconds >= 0 for s in stats)
        assert stats[-1].blocks_free == 8
        assert stats[-1].waste_tokens == 0

    def test_times_of_a_request_follow_the_clock(self) -> None:
        model = SimulatedModel(base_seconds=1.0, row_seconds=0, attention_pair_seconds=0, kv_token_seconds=0)
        engine, _ = simulated_engine(model=model, sequence_limit=1)
        outcome = run(engine, make_request("a", output=4), make_request("b", output=3)).outcomes["b"]
        assert outcome.queue_seconds == 4.0
        assert outcome.prefill_seconds == 1.0
        assert outcome.decode_seconds == 2.0
        assert outcome.total_seconds == 7.0

    def test_an_idle_step_costs_a_little_simulated_time(self) -> None:
        engine, clock = simulated_engine()
        engine.step()
        assert clock.now() == SimulatedModel().empty_seconds


def test_as_a_library_it_generates_prompts_together() -> None:
    engine, _ = simulated_engine()
    texts = engine.generate([[1, 2, 3], [4, 5]], SamplingParams(max_tokens=4, temperature=0, ignore_eos=True))
    assert [len(text) for text in texts] == [4, 4]
    assert engine.generate([[1, 2, 3]], SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)) == texts[:1]
    assert not engine.has_work


def test_as_a_library_a_refusal_is_raised() -> None:
    engine, _ = simulated_engine(num_blocks=2)
    with pytest.raises(EngineUnavailable, match="tokens"):
        engine.generate([[1] * 500], SamplingParams())


def test_requests_without_a_seed_differ_and_repeat_with_the_engines_seed() -> None:
    def texts(seed: int) -> list[list[int]]:
        engine, _ = simulated_engine(seed=seed)
        return engine.generate([[1, 2, 3]] * 3, SamplingParams(max_tokens=5, temperature=1.0, ignore_eos=True))

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)
    assert len({tuple(text) for text in texts(1)}) == 3


def test_info_says_what_is_served() -> None:
    engine, _ = simulated_engine(["orca"], num_blocks=10, block_size=16, max_model_len=10_000)
    info = engine.info
    assert (info.model, info.num_blocks, info.block_size, info.max_model_len) == ("simulated", 10, 16, 160)
    assert info.policies["plan_iteration"] == ["orca", "stall_free"]
    assert isinstance(info.config, EngineConfig)


def test_engines_share_nothing() -> None:
    first, clock = simulated_engine()
    second, other = simulated_engine()
    run(first, make_request("a"))
    assert clock.now() > 0
    assert isinstance(other, VirtualClock)
    assert other.now() == 0
    assert not second.has_work
