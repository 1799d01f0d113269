"""What an outcome tells of preemptions and of reasons to be held back."""

from __future__ import annotations

from core_engine.engine import Engine
from core_engine.hookspecs import hookimpl
from core_engine.messages import Outcome
from core_engine.plan import PrefillLimit
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from core_engine.view import EngineView


class Reasons:
    """Holds every newcomer but the first for its reason of the iteration, and then lets them board."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit | None:
        if view.iteration > len(self.reasons):
            return None
        held = {s.id: self.reasons[view.iteration - 1] for queue in view.waiting.values() for s in queue.window()}
        return PrefillLimit(held={sequence_id: reason for sequence_id, reason in held.items() if sequence_id > 0})


def request(name: str, prompt: int = 10, output: int = 8, n: int = 1) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    return Request(id=name, model="simulated", prompt_token_ids=[1] * prompt, sampling=sampling, n=n)


def finish(engine: Engine, *requests: Request) -> dict[str, Outcome]:
    for wanted in requests:
        engine.submit(wanted)
    outcomes = {}
    while engine.has_work:
        outcomes.update((outcome.request_id, outcome) for outcome in engine.step().finished)
    return outcomes


def test_nothing_befalls_who_boards_at_once() -> None:
    engine, _ = simulated_engine()
    assert all(not outcome.setbacks for outcome in finish(engine, request("a"), request("b")).values())


def test_a_hold_is_told_when_its_reason_changes() -> None:
    engine, _ = simulated_engine([Reasons("full", "full", "busy", "busy", "full")])
    outcomes = finish(engine, request("a", output=20), request("b"))
    assert not outcomes["a"].setbacks
    told = outcomes["b"].setbacks
    assert [(s.kind, s.cause) for s in told] == [("held", f"reasons: {why}") for why in ("full", "busy", "full")]
    seconds = [setback.seconds for setback in told]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= outcomes["b"].queue_seconds


def test_a_preemption_is_told_with_its_cause_and_sample() -> None:
    engine, _ = simulated_engine(["paged:headroom=0"], num_blocks=6, block_size=8, sequence_limit=4)
    outcomes = finish(engine, request("a", output=25), request("b", output=25, n=2))
    told = [(s.kind, s.cause, s.sample_index) for s in outcomes["b"].setbacks if s.kind == "preempted"]
    assert len(told) == outcomes["b"].num_preemptions > 0
    assert {cause for _, cause, _ in told} == {"memory"}
    assert {index for *_, index in told} <= {0, 1}


def test_what_is_told_is_bounded() -> None:
    engine, _ = simulated_engine([Reasons(*(f"reason {number}" for number in range(500)))])
    setbacks = finish(engine, request("a", output=600), request("b"))["b"].setbacks
    assert 10 < len(setbacks) < 100
