"""The engine's own rules for progress, and the count of how often one of them had to step in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_engine.budget import Budget
from core_engine.engine import Engine
from core_engine.hookspecs import hookimpl
from core_engine.plan import IterationPlan, PrefillLimit
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from core_engine.view import EngineView, SequenceView


def request(name: str, prompt: int = 10, output: int = 8) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    return Request(id=name, model="simulated", prompt_token_ids=[1] * prompt, sampling=sampling)


def finish(engine: Engine, *requests: Request) -> list[Any]:
    for wanted in requests:
        engine.submit(wanted)
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
        assert len(outputs) < 1000
    return outputs


class Idle:
    @hookimpl
    def plan_iteration(self) -> IterationPlan:
        return IterationPlan({})


class Shut:
    @hookimpl
    def limit_prefill(self) -> PrefillLimit:
        return PrefillLimit(new_sequences=0, reason="shut")


class LastFirst:
    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        everybody = [*view.running, *(s for queue in view.waiting.values() for s in queue.window())]
        return sorted((s.id for s in everybody), reverse=True), set()


class NeverDelivers:
    @hookimpl
    def plan_iteration(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget
    ) -> IterationPlan:
        for sequence in [*running, *waiting]:
            budget.take(sequence, sequence.num_pending_tokens)
        return budget.plan(deliver=False)


def test_a_good_policy_needs_none() -> None:
    engine, _ = simulated_engine(["fair_share"])
    finish(engine, *(request(f"r{number}") for number in range(20)))
    assert not +engine.state.rescues


def test_the_oldest_moves_every_few_iterations() -> None:
    engine, _ = simulated_engine([Idle()])
    outputs = finish(engine, request("r", output=3))
    assert engine.state.rescues["anchor"] == 3
    assert len(outputs) <= 20


def test_gates_are_passed_over_when_nothing_runs() -> None:
    engine, _ = simulated_engine([Shut()])
    finish(engine, request("a"), request("b"), request("c"))
    assert dict(+engine.state.rescues) == {"gates": 3}


def test_every_message_tells_the_new_rescues_only() -> None:
    engine, _ = simulated_engine([Shut()])
    told = [output.stats.rescues for output in finish(engine, request("a"), request("b"), request("c"))]
    assert [rescues for rescues in told if rescues] == [{"gates": 1}] * 3


def test_whoever_is_overdue_boards() -> None:
    engine, _ = simulated_engine([LastFirst()], sequence_limit=1, max_wait_iterations=20)
    engine.submit(request("running", output=4))
    engine.step()
    engine.submit(request("victim", output=4))
    ended: list[str] = []
    for number in range(30):
        engine.submit(request(f"r{number}", output=2))
        ended += [outcome.request_id for outcome in engine.step().finished]
    assert "victim" in ended
    assert engine.state.rescues["overdue"] >= 1


def test_held_results_go_out_after_the_longest_wait_and_again_after_that() -> None:
    engine, _ = simulated_engine([NeverDelivers()], max_wait_iterations=10)
    outputs = finish(engine, request("r", output=35))
    assert [number for number, output in enumerate(outputs, 1) if output.outputs] == [10, 20, 30, 35]
    assert engine.state.rescues["held"] == 3
