"""One iteration after the other: who boards, who rides and who gets off, in which order."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import pytest

from core_engine.engine import Engine
from core_engine.hookspecs import hookimpl
from core_engine.lab.simulate import Recorder, Simulation, simulate
from core_engine.lab.workloads import Lengths, at_once, requests
from core_engine.plan import IterationPlan, IterationRecord, Shortage
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from core_engine.view import EngineView


def make_request(name: str, prompt: int = 10, output: int = 4, **fields: Any) -> Request:
    return Request(
        id=name,
        model="simulated",
        prompt_token_ids=[(zlib.crc32(name.encode()) + i) % 990 for i in range(prompt)],
        sampling=SamplingParams(max_tokens=output, temperature=0, ignore_eos=True),
        **fields,
    )


def run(engine: Engine, *wanted: Request, iterations: int = 1000) -> Simulation:
    """Submit them now and step until nothing is left to do."""
    for request in wanted:
        engine.submit(request)
    simulation = Simulation()
    while engine.has_work and simulation.iterations < iterations:
        simulation.add(engine.step())
    return simulation


def with_recorder(*policies: Any, **options: Any) -> tuple[Engine, Recorder]:
    recorder = Recorder()
    engine, _ = simulated_engine([*policies, recorder], **options)
    return engine, recorder


def tokens(recorder: Recorder) -> list[dict[int, int]]:
    return [record.num_tokens for record in recorder.records()]


def test_a_request_alone_is_its_prompt_and_then_a_token_an_iteration() -> None:
    engine, recorder = with_recorder()
    simulation = run(engine, make_request("a", prompt=10, output=3))
    assert tokens(recorder) == [{0: 10}, {0: 1}, {0: 1}]
    assert len(simulation.token_ids["a", 0]) == 3
    assert simulation.finish_reasons == {("a", 0): "length"}
    outcome = simulation.outcomes["a"]
    assert (outcome.num_prompt_tokens, outcome.num_output_tokens, outcome.finish_reason) == (10, 3, "length")


def test_a_prompt_is_computed_in_chunks_beside_decodes() -> None:
    engine, recorder = with_recorder(token_limit=16)
    engine.submit(make_request("a", prompt=5, output=8))
    engine.step()
    run(engine, make_request("b", prompt=40, output=2))
    assert tokens(recorder)[1:5] == [{0: 1, 1: 15}, {0: 1, 1: 15}, {0: 1, 1: 10}, {0: 1, 1: 1}]


def test_a_newcomer_has_its_first_token_while_all_others_decode() -> None:
    engine, _ = with_recorder()
    for i in range(4):
        engine.submit(make_request(f"old{i}", output=50))
    simulation = Simulation()
    for _ in range(5):
        simulation.add(engine.step())
    engine.submit(make_request("new", output=2))
    while engine.has_work:
        simulation.add(engine.step())
    assert simulation.first_tokens["new", 0] == 6
    assert simulation.ended["new"] == 7
    assert all(simulation.ended[f"old{i}"] == 50 for i in range(4))


def test_who_has_finished_leaves_at_once_and_its_seat_is_taken_in_the_next_iteration() -> None:
    engine, recorder = with_recorder(sequence_limit=2)
    simulation = run(engine, make_request("a", output=2), make_request("b", output=9), make_request("c", output=2))
    records = recorder.records()
    assert simulation.ended["a"] == 2
    assert records[1].finished == {0: "length"}
    assert records[2].started == (2,)
    assert simulation.first_tokens["c", 0] == 3


def test_blocks_of_the_finished_are_free_when_the_iteration_ends() -> None:
    engine, recorder = with_recorder(num_blocks=10, block_size=8)
    run(engine, make_request("a", prompt=20, output=2))
    assert [record.num_free_blocks for record in recorder.records()] == [7, 10]


class TestPreemption:
    def preempting(self) -> tuple[Simulation, list[IterationRecord], Simulation]:
        wanted = [make_request(name, prompt=14, output=30) for name in "abc"]
        roomy, _ = with_recorder(num_blocks=100)
        tight, recorder = with_recorder("paged:headroom=0", num_blocks=8, block_size=8)
        return run(tight, *wanted), recorder.records(), run(roomy, *wanted)

    def test_recomputes_and_generates_the_same_tokens(self) -> None:
        tight, _, roomy = self.preempting()
        assert tight.token_ids == roomy.token_ids
        assert sum(outcome.num_preemptions for outcome in tight.outcomes.values()) > 0
        assert sum(outcome.num_preemptions for outcome in roomy.outcomes.values()) == 0

    def test_takes_the_latest_first_and_spares_the_oldest(self) -> None:
        tight, records, _ = self.preempting()
        first = next(record for record in records if record.preempted)
        assert first.preempted == {2: "memory"}
        assert tight.outcomes["a"].num_preemptions == 0

    def test_nothing_starts_in_the_iteration_that_preempted_for_memory(self) -> None:
        _, records, _ = self.preempting()
        assert not [record for record in records if record.preempted and record.started]

    def test_is_a_shortage_with_its_cause(self) -> None:
        _, records, _ = self.preempting()
        assert next(record for record in records if record.preempted).shortages["next_block"] == 1

    def test_who_was_preempted_waits_at_its_old_place(self) -> None:
        wanted = [make_request("a", 14, 30), make_request("b", 14, 30), make_request("c", 30, 4)]
        engine, recorder = with_recorder("paged:headroom=0", num_blocks=6, block_size=8, sequence_limit=2)
        run(engine, *wanted)
        starts = [sequence for record in recorder.records() for sequence in record.started]
        assert starts.count(1) > 1
        assert starts == sorted(starts)


class Plans:
    """A planner that always answers the same."""

    def __init__(self, plan: IterationPlan) -> None:
        self.plan = plan

    @hookimpl
    def plan_iteration(self) -> IterationPlan:
        return self.plan


def test_the_anchor_moves_in_every_fifth_iteration_whatever_the_planner_says() -> None:
    engine, recorder = with_recorder(Plans(IterationPlan({})))
    simulation = run(engine, make_request("a", prompt=20, output=3), make_request("b", prompt=5, output=1))
    moved = [record.iteration for record in recorder.records() if record.num_tokens]
    steps = [later - earlier for earlier, later in itertools.pairwise(moved)]
    assert steps == [5] * len(steps)
    assert set(simulation.outcomes) == {"a", "b"}


class Starve:
    """Plans and ranks only the newest."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> Any:
        waiting = [s.id for queue in view.waiting.values() for s in queue.window()]
        return sorted(waiting + [s.id for s in view.running], reverse=True), set()


def test_an_overdue_request_takes_the_next_seat() -> None:
    engine, recorder = with_recorder(Starve(), sequence_limit=1, max_wait_iterations=20)
    simulation = Simulation()
    engine.submit(make_request("old", output=2))
    for i in range(40):
        engine.submit(make_request(f"new{i}", output=4))
        simulation.add(engine.step())
    start = next(record.iteration for record in recorder.records() if 0 in record.started)
    assert 20 <= start <= 20 + 4
    assert simulation.first_tokens["old", 0] == start


class RankPreempts:
    """The newest outrank all others, and take their seats."""

    @hookimpl
    def rank_sequences(self, view: EngineView) -> Any:
        return sorted((s.id for queue in view.waiting.values() for s in queue.window()), reverse=True), set()

    @hookimpl
    def choose_victims(self, order: list[int], shortage: Shortage) -> list[int]:
        self.shortage = shortage
        return order[::-1] if shortage.kind == "rank" else []


def test_a_better_ranked_sequence_takes_a_seat_but_never_the_anchors() -> None:
    policy = RankPreempts()
    engine, recorder = with_recorder(policy, sequence_limit=2)
    for name in "ab":
        engine.submit(make_request(name, output=9))
    engine.step()
    run(engine, make_request("c", output=2), make_request("d", output=2))
    preempted = [record.preempted for record in recorder.records() if record.preempted]
    assert preempted[0] == {1: "rank"}
    assert policy.shortage.kind == "rank"
    assert all(0 not in victims for victims in preempted)


def test_a_whole_prompt_over_the_token_limit_runs_alone() -> None:
    engine, recorder = with_recorder("orca", token_limit=16, num_blocks=40)
    run(engine, make_request("a", 5, 3), make_request("b", 50, 2), make_request("c", 5, 1))
    assert tokens(recorder) == [{0: 5}, {0: 1}, {0: 1}, {1: 50}, {1: 1, 2: 5}]


def test_a_whole_prompt_that_fits_no_memory_is_refused() -> None:
    engine, _ = with_recorder("orca", token_limit=16, max_lone_prompt_tokens=30)
    simulation = run(engine, make_request("a", prompt=31), make_request("b", prompt=30))
    assert simulation.rejected["a"].reason == "context_length_exceeded"
    assert "whole" in simulation.rejected["a"].message
    assert simulation.outcomes["b"].finish_reason == "length"


def test_without_whole_prompts_the_same_prompt_runs_in_chunks() -> None:
    engine, _ = with_recorder(token_limit=16, max_lone_prompt_tokens=30)
    assert run(engine, make_request("a", prompt=31)).outcomes["a"].finish_reason == "length"


def test_held_results_come_when_nothing_runs_any_more() -> None:
    engine, _ = with_recorder(NeverDelivers())
    simulation = run(engine, make_request("a", output=3), make_request("b", output=6))
    assert simulation.ended == {"a": 6, "b": 6}
    assert simulation.first_tokens == {("a", 0): 6, ("b", 0): 6}
    assert [len(tokens) for tokens in simulation.token_ids.values()] == [3, 6]


class NeverDelivers:
    @hookimpl
    def plan_iteration(self, running: Any, waiting: Any, budget: Any) -> IterationPlan:
        for sequence in [*running, *waiting]:
            budget.take(sequence, sequence.num_pending_tokens)
        plan: IterationPlan = budget.plan(deliver=False)
        return plan


def test_results_are_not_held_longer_than_anybody_may_wait() -> None:
    engine, _ = with_recorder(NeverDelivers(), max_wait_iterations=5)
    assert run(engine, make_request("a", output=30)).first_tokens["a", 0] <= 7


def test_equal_runs_give_equal_records_byte_for_byte() -> None:
    def lines() -> list[bytes]:
        recorder = Recorder()
        engine, clock = simulated_engine(["orca:max_batch=3", recorder], num_blocks=20)
        simulate(engine, clock, at_once(requests([Lengths(30, 9)] * 12, seed=3, vocab_size=900)))
        return recorder.lines

    assert lines() == lines()
    assert len(lines()) > 20


@pytest.mark.parametrize("policies", [[], ["orca"], ["static_batch"]])
def test_texts_do_not_depend_on_policy_or_company(policies: list[str]) -> None:
    wanted = [make_request(f"r{i}", prompt=5 + i, output=3 + i) for i in range(12)]
    engine, _ = with_recorder(*policies, num_blocks=16)
    together = run(engine, *wanted)
    for request in wanted:
        alone, _ = with_recorder()
        assert run(alone, request).token_ids[request.id, 0] == together.token_ids[request.id, 0]
