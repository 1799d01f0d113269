"""What the engine accepts and refuses on arrival, and under which bound."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.hookspecs import hookimpl
from core_engine.messages import Outcome
from core_engine.plan import Admit, Reject
from core_engine.request import Request
from core_engine.testkit import simulated_engine
from tests.engine.test_engine import with_sampling
from tests.engine.test_iterations import make_request, run, with_recorder


class Admits:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.finished: list[Outcome] = []

    @hookimpl
    def admit_request(self) -> Any:
        return self.answer

    @hookimpl
    def on_request_finished(self, outcome: Outcome) -> None:
        self.finished.append(outcome)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (make_request("a", prompt=0), "empty_prompt"),
        (make_request("a", prompt=160), "context_length_exceeded"),
        (Request(id="a", model="other", prompt_token_ids=[1]), "model_not_found"),
        (Request(id="a", model="simulated", prompt_token_ids=[1], kind="embed"), "unsupported_kind"),
        (Request(id="a", model="simulated", prompt_token_ids=[1, 1000]), "invalid_token_id"),
        (Request(id="a", model="simulated", prompt_token_ids=[-1]), "invalid_token_id"),
    ],
)
def test_what_can_never_run_is_refused_without_a_time_to_try_again(request_: Request, reason: str) -> None:
    engine, _ = with_recorder(num_blocks=10, block_size=16)
    verdict = run(engine, request_).rejected["a"]
    assert verdict.reason == reason
    assert verdict.retry_after_seconds is None
    assert not engine.has_work


def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    engine, _ = with_recorder()
    engine.submit(make_request("a"))
    engine.submit(make_request("a"))
    output = engine.step()
    assert [a.request_id for a in output.accepted] == ["a"]
    assert [r.reason for r in output.rejected] == ["duplicate_request_id"]
    run(engine)
    assert "a" in run(engine, make_request("a")).outcomes


@pytest.mark.parametrize(
    ("wanted", "default", "holds"), [(5, None, 5), (5, 3, 5), (None, 3, 3), (None, None, 97), (500, None, 97)]
)
def test_max_tokens_is_the_clients_else_the_operators_else_what_fits(
    wanted: int | None, default: int | None, holds: int
) -> None:
    engine, _ = simulated_engine(max_model_len=100, default_max_tokens=default)
    engine.submit(with_sampling("a", max_tokens=wanted, ignore_eos=True))
    assert [a.max_tokens for a in engine.step().accepted] == [holds]


def test_the_pool_bounds_max_tokens_too() -> None:
    engine, _ = simulated_engine(num_blocks=4, block_size=16, max_model_len=10_000)
    engine.submit(with_sampling("a", ignore_eos=True))
    assert [a.max_tokens for a in engine.step().accepted] == [61]


def test_everybody_is_asked_and_any_rejection_wins() -> None:
    first, second, third = Admits(Admit({"x-a": "1"})), Admits(Reject("busy", 7.5)), Admits(Admit({"x-b": "2"}))
    engine, _ = with_recorder(first, second, third)
    verdict = run(engine, make_request("a")).rejected["a"]
    assert (verdict.reason, verdict.retry_after_seconds) == ("busy", 7.5)
    assert verdict.limits == {"x-a": "1", "x-b": "2"}
    for policy in (first, third):
        assert [outcome.finish_reason for outcome in policy.finished] == ["rejected"]
        assert policy.finished[0].reason == "busy"


def test_limits_of_all_become_headers() -> None:
    engine, _ = with_recorder(Admits(Admit({"x-a": "1"})), Admits(Admit({"x-b": "2"})))
    engine.submit(make_request("a"))
    assert engine.step().accepted[0].limits == {"x-a": "1", "x-b": "2"}
