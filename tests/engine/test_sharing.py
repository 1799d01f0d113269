"""Shared blocks in a running engine: prompts that begin alike, and siblings of one request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.engine import Engine
from core_engine.executor import Batch
from core_engine.lab.simulate import Simulation
from core_engine.request import Request, SamplingParams, Sequence
from core_engine.testkit import simulated_engine

SIZE = 16


def request(name: str, prompt: list[int], output: int = 4, *, temperature: float = 0, **fields: Any) -> Request:
    sampling = SamplingParams(temperature=temperature, max_tokens=output, ignore_eos=True, seed=3)
    return Request(id=name, model="simulated", prompt_token_ids=prompt, sampling=sampling, **fields)


def prompt(length: int, *, alike: int = 0, of: int = 0) -> list[int]:
    """A prompt whose first `alike` tokens are those of all others."""
    return [i % 990 if i < alike else (i * 7 + of * 131 + 1) % 990 for i in range(length)]


class Watched:
    """An engine that remembers contents, and every batch that it executed."""

    def __init__(self, *policies: Any, **options: Any) -> None:
        self.engine, _ = simulated_engine(
            policies or ("prefix_cache",), **{"token_limit": 256, "num_blocks": 64, "strict": True, **options}
        )
        self.batches: list[Batch] = []
        self.simulation = Simulation()
        submit = self.engine._executor.submit

        def watched(batch: Batch) -> object:
            self.batches.append(batch)
            return submit(batch)

        self.engine._executor.submit = watched  # type: ignore[method-assign]

    def submit(self, *requests: Request) -> None:
        for wanted in requests:
            self.engine.submit(wanted)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.simulation.add(self.engine.step())

    def finish(self) -> None:
        while self.engine.has_work:
            self.step()

    def run(self, *requests: Request) -> dict[str, int]:
        """Serve these, and return the prompt tokens that each found computed."""
        self.submit(*requests)
        self.finish()
        return {wanted.id: self.simulation.outcomes[wanted.id].num_cached_tokens for wanted in requests}

    def computed(self) -> int:
        return sum(batch.total_tokens for batch in self.batches)

    def running(self) -> list[Sequence]:
        return self.engine.state.running


def texts(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[int]]:
    simulation = Simulation()
    for wanted in requests:
        engine.submit(wanted)
    while engine.has_work:
        simulation.add(engine.step())
    return simulation.token_ids


class TestPrefixes:
    def test_the_second_finds_what_the_first_computed(self) -> None:
        watched = Watched()
        assert watched.run(request("first", prompt(50, alike=50))) == {"first": 0}
        assert watched.run(request("second", prompt(50, alike=50))) == {"second": 48}
        assert watched.batches[0].num_query_tokens == [50]
        assert watched.batches[4].num_query_tokens == [2]

    def test_the_last_prompt_token_is_always_computed(self) -> None:
        watched = Watched()
        watched.run(request("first", prompt(48, alike=48)))
        assert watched.run(request("second", prompt(48, alike=48))) == {"second": 32}

    def test_a_partial_hit(self) -> None:
        watched = Watched()
        watched.run(request("first", prompt(64, alike=40)))
        assert watched.run(request("second", prompt(64, alike=40, of=1))) == {"second": 32}

    def test_running_ones_share_too(self) -> None:
        watched = Watched()
        watched.submit(request("first", prompt(50, alike=50), output=20))
        watched.step(2)
        watched.submit(request("second", prompt(50, alike=40, of=1), output=20))
        watched.step()
        first, second = watched.running()
        assert first.block_table[:2] == second.block_table[:2]
        assert (first.num_shared_blocks, second.num_shared_blocks, second.num_matched_tokens) == (2, 2, 32)
        assert watched.engine.state.num_free_blocks == 64 - len({*first.block_table, *second.block_table})

    def test_two_that_start_together_compute_each_for_itself(self) -> None:
        watched = Watched()
        same = prompt(50, alike=50)
        assert watched.run(request("first", same), request("second", same)) == {"first": 0, "second": 0}
        assert watched.run(request("third", same)) == {"third": 48}

    @pytest.mark.parametrize(
        ("fields", "found"),
        [({}, 48), ({"tenant": "other"}, 0), ({"cache_salt": "salt"}, 0), ({"tenant": "a", "cache_salt": "b"}, 0)],
    )
    def test_tenants_and_salts_share_nothing(self, fields: dict[str, str], found: int) -> None:
        watched = Watched()
        watched.run(request("first", prompt(50, alike=50)))
        assert watched.run(request("second", prompt(50, alike=50), **fields)) == {"second": found}

    def test_no_tenant_and_salt_look_like_another_pair(self) -> None:
        watched = Watched()
        watched.run(request("first", prompt(50, alike=50), tenant="a", cache_salt="bc"))
        assert watched.run(request("second", prompt(50, alike=50), tenant="ab", cache_salt="c")) == {"second": 0}

    def test_contents_are_evicted_under_pressure_least_recently_used_first(self) -> None:
        watched = Watched(num_blocks=8)
        for number in range(3):  # two blocks each, and one to decode in
            watched.run(request(f"r{number}", prompt(33, of=number), output=2))
        assert watched.engine.state.num_cached_idle_blocks == 6
        watched.run(request("large", prompt(60, of=9), output=2))  # takes the two that are blank, and two more
        assert watched.run(request("again-2", prompt(33, of=2), output=2)) == {"again-2": 32}
        assert watched.run(request("again-0", prompt(33, of=0), output=2)) == {"again-0": 0}

    def test_idle_contents_are_room_for_others(self) -> None:
        watched = Watched(num_blocks=8)
        watched.run(request("first", prompt(100, alike=100)))
        watched.submit(request("second", prompt(110, of=3), output=10))
        watched.step()
        assert [sequence.request_id for sequence in watched.running()] == ["second"]

    def test_a_preempted_sequence_finds_its_own_prompt(self) -> None:
        watched = Watched("prefix_cache", "paged:headroom=0", num_blocks=9, strict=True)
        watched.submit(request("first", prompt(60, of=1), output=40), request("second", prompt(60, of=2), output=40))
        watched.finish()
        outcome = watched.simulation.outcomes["second"]
        assert outcome.num_preemptions > 0
        assert outcome.num_cached_tokens == 0  # what the client is told is of the first start
        again = [batch for batch in watched.batches if batch.num_query_tokens and max(batch.num_query_tokens) > 1]
        assert max(again[-1].num_query_tokens) < 60

    def test_failed_rows_are_not_remembered(self) -> None:
        watched = Watched()
        collect = watched.engine._executor.collect

        def failing(handle: object) -> Any:
            result = collect(handle)
            result.failed_rows[0] = "not finite"
            return result

        watched.engine._executor.collect = failing  # type: ignore[method-assign]
        watched.submit(request("first", prompt(50, alike=50)))
        watched.step()
        assert watched.simulation.errors == {("first", 0): "not finite"}
        watched.engine._executor.collect = collect  # type: ignore[method-assign]
        assert watched.run(request("second", prompt(50, alike=50))) == {"second": 0}

    def test_without_the_policy_nothing_is_shared(self) -> None:
        watched = Watched("paged")
        watched.run(request("first", prompt(50, alike=50)))
        assert watched.run(request("second", prompt(50, alike=50))) == {"second": 0}
        assert watched.engine.state.num_cached_idle_blocks == 0


class TestSiblings:
    @pytest.mark.parametrize("policy", ["prefix_cache", "paged"])
    def test_the_prompt_is_computed_once(self, policy: str) -> None:
        watched = Watched(policy)
        watched.submit(request("r", prompt(50), output=6, n=3, temperature=1))
        watched.step()
        assert [(s.sample_index, s.num_computed_tokens) for s in watched.running()] == [(0, 50)]
        watched.step()
        first, second, third = watched.running()
        assert first.block_table[:3] == second.block_table[:3] == third.block_table[:3]
        assert len({first.block_table[3], second.block_table[3], third.block_table[3]}) == 3
        assert watched.batches[1].num_query_tokens == [1, 1, 1]
        assert watched.batches[1].block_copies == [(first.block_table[3], s.block_table[3]) for s in (second, third)]
        assert [s.num_shared_blocks for s in watched.running()] == [3, 3, 3]
        watched.finish()
        assert len({tuple(tokens) for tokens in watched.simulation.token_ids.values()}) == 3

    def test_nothing_is_copied_where_the_last_prompt_token_begins_a_block(self) -> None:
        watched = Watched("paged")
        watched.submit(request("r", prompt(49), n=2))
        watched.step(2)
        first, second = watched.running()
        assert watched.batches[1].block_copies == []
        assert first.block_table[:3] == second.block_table[:3]
        assert not set(first.block_table[3:]) & set(second.block_table[3:])

    @pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 32, 33])
    def test_texts_are_those_of_lone_requests(self, length: int) -> None:
        engine, _ = simulated_engine(["paged"])
        alone = texts(engine, request("r", prompt(length), output=20))["r", 0]
        watched = Watched("paged")
        watched.run(request("r", prompt(length), output=20, n=3))
        assert list(watched.simulation.token_ids.values()) == [alone] * 3

    def test_a_sibling_that_ends_leaves_the_blocks_to_the_others(self) -> None:
        watched = Watched("paged")
        watched.submit(request("r", prompt(50), output=10, n=2))
        watched.step(2)
        first, second = watched.running()
        shared = first.block_table[:3]
        watched.engine._commit._finish(first, "length")
        assert second.block_table[:3] == shared
        assert second.num_shared_blocks == 0
        watched.engine.state.check_integrity()
        watched.finish()
        assert len(watched.simulation.token_ids["r", 1]) == 10
        assert watched.engine.state.num_free_blocks == 64

    def test_a_cancelled_request_frees_what_its_siblings_shared(self) -> None:
        watched = Watched("prefix_cache")
        watched.submit(request("r", prompt(50), output=40, n=3))
        watched.step(3)
        watched.engine.cancel("r")
        watched.step()
        assert watched.running() == []
        state = watched.engine.state
        assert (state.num_free_blocks, state.num_cached_idle_blocks) == (64, 3)

    def test_cancelled_before_the_prompt_is_computed(self) -> None:
        watched = Watched("paged", token_limit=16)
        watched.submit(request("r", prompt(50), n=3))
        watched.step(2)
        watched.engine.cancel("r")
        watched.step()
        assert (watched.engine.state.num_free_blocks, watched.engine.has_work) == (64, False)

    def test_when_the_leader_ends_early_the_next_leads(self) -> None:
        watched = Watched("paged", token_limit=16)
        watched.submit(request("r", prompt(50), output=3, n=2))
        watched.step(2)
        (leader,) = watched.running()
        watched.engine._commit._finish(leader, "length")
        watched.finish()
        assert len(watched.simulation.token_ids["r", 1]) == 3

    def test_a_preempted_sibling_comes_back_by_the_blocks_of_another(self) -> None:
        watched = Watched("paged")
        watched.submit(request("r", prompt(60), output=20, n=2))
        watched.step(5)
        first, second = watched.running()
        assert watched.engine.state.preempt(second, "memory") == 1  # the shared ones stay
        assert first.num_shared_blocks == 0
        watched.step()
        assert watched.batches[-1].num_query_tokens == [1, 5]  # the last prompt token, and four of its own
        assert first.block_table[:3] == second.block_table[:3]
        watched.finish()
        assert watched.simulation.token_ids["r", 0] == watched.simulation.token_ids["r", 1]

    def test_a_preempted_leader_comes_back_by_the_blocks_of_those_it_led(self) -> None:
        watched = Watched("paged")
        watched.submit(request("r", prompt(60), output=20, n=2))
        watched.step(5)
        first, _ = watched.running()
        watched.engine.state.preempt(first, "memory")
        watched.step()
        assert sorted(watched.batches[-1].num_query_tokens) == [1, 6]
        watched.finish()
        assert watched.simulation.token_ids["r", 0] == watched.simulation.token_ids["r", 1]

    def test_siblings_that_find_no_room_together_run_one_after_the_other(self) -> None:
        watched = Watched("paged:headroom=0", num_blocks=7)
        watched.submit(request("r", prompt(60), output=40, n=2))
        watched.finish()
        assert watched.simulation.outcomes["r"].num_preemptions > 0
        assert watched.simulation.token_ids["r", 0] == watched.simulation.token_ids["r", 1]
        assert len(watched.simulation.token_ids["r", 0]) == 40

    def test_siblings_that_meet_a_remembered_prompt_share_that(self) -> None:
        watched = Watched()
        watched.run(request("first", prompt(50, alike=50)))
        watched.submit(request("r", prompt(50, alike=50), n=2))
        watched.step(2)
        first, second = watched.running()
        assert watched.batches[4].num_query_tokens == [2]
        assert first.block_table[:3] == second.block_table[:3]

    def test_usage_counts_what_the_first_found(self) -> None:
        watched = Watched()
        watched.run(request("first", prompt(50, alike=50)))
        watched.run(request("r", prompt(50, alike=50), n=3))
        outcome = watched.simulation.outcomes["r"]
        assert (outcome.num_prompt_tokens, outcome.num_cached_tokens, outcome.num_output_tokens) == (50, 48, 12)


@given(
    st.lists(
        st.tuples(st.integers(1, 70), st.integers(0, 70), st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=6
    ),
    st.integers(6, 20),
    st.booleans(),
)
def test_texts_are_the_same_with_and_without(
    wishes: list[tuple[int, int, int, int]], num_blocks: int, orca: bool
) -> None:
    requests = [
        request(f"r{i}", prompt(length, alike=alike, of=i), output=output, n=n)
        for i, (length, alike, output, n) in enumerate(wishes)
    ]
    planner = ["orca:max_batch=3"] if orca else []
    with_cache, _ = simulated_engine(["prefix_cache", *planner], num_blocks=num_blocks, strict=True)
    without, _ = simulated_engine(["paged", *planner], num_blocks=64, strict=True)
    assert texts(with_cache, *requests) == texts(without, *requests)
    assert with_cache.state.num_free_blocks == num_blocks
