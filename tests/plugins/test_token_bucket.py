from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import ConfigurationError
from core_engine.hookspecs import hookimpl
from core_engine.messages import Outcome
from core_engine.plan import Admit, Reject
from core_engine.request import Request
from plugins.token_bucket import TokenBucket, TokenBucketOptions
from tests.plugins.runs import Run, make_request


class Desk:
    """The policy as requests come and end at chosen times."""

    def __init__(self, **options: int) -> None:
        self.policy = TokenBucket(TokenBucketOptions(**options), 0)
        self.now = 0.0
        self.mean_output_tokens = 0.0

    @property
    def view(self) -> Any:
        return SimpleNamespace(now=self.now, mean_output_tokens=self.mean_output_tokens)

    def admit(self, request: Request) -> Admit | Reject:
        return self.policy.admit_request(request, self.view)

    def end(self, request: Request, output: int, reason: Any = "stop") -> None:
        outcome = Outcome(
            request_id=request.id,
            finish_reason=reason,
            num_prompt_tokens=len(request.prompt_token_ids),
            num_output_tokens=output,
        )
        self.policy.on_request_finished(request, outcome, self.view)

    def tokens_left(self, tenant: str = "anonymous") -> float:
        return self.policy._buckets[tenant][1].level(self.now)


def test_headers_tell_what_is_left_on_success_too() -> None:
    desk = Desk(requests_per_minute=60, tokens_per_minute=6000)
    answer = desk.admit(make_request("a", 100, 50))
    assert isinstance(answer, Admit)
    assert answer.limits == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5850",
        "x-ratelimit-reset-tokens": "1.5s",
    }


def test_too_many_requests_are_refused_until_there_is_one_more() -> None:
    desk = Desk(requests_per_minute=2)
    assert isinstance(desk.admit(make_request("a")), Admit)
    assert isinstance(desk.admit(make_request("b")), Admit)
    answer = desk.admit(make_request("c"))
    assert isinstance(answer, Reject)
    assert answer.reason == "rate_limit_exceeded"
    assert answer.message == "the limit of 2 requests per minute is reached"
    assert answer.retry_after_seconds == 30
    assert answer.limits["x-ratelimit-remaining-requests"] == "0"
    assert answer.limits["x-ratelimit-reset-requests"] == "1m0s"
    desk.now = 29.9
    assert isinstance(desk.admit(make_request("c")), Reject)
    desk.now = 30.0
    assert isinstance(desk.admit(make_request("c")), Admit)


def test_too_many_tokens_are_refused_until_there_are_enough() -> None:
    desk = Desk(tokens_per_minute=600)
    assert isinstance(desk.admit(make_request("a", 500, 50)), Admit)
    answer = desk.admit(make_request("b", 100, 50))
    assert isinstance(answer, Reject)
    assert answer.message == "the limit of 600 tokens per minute is reached"
    assert answer.retry_after_seconds == pytest.approx(10)
    desk.now = answer.retry_after_seconds
    assert isinstance(desk.admit(make_request("b", 100, 50)), Admit)


def test_tenants_have_buckets_of_their_own() -> None:
    desk = Desk(requests_per_minute=1)
    assert isinstance(desk.admit(make_request("a", tenant="one")), Admit)
    assert isinstance(desk.admit(make_request("b", tenant="one")), Reject)
    assert isinstance(desk.admit(make_request("c", tenant="two")), Admit)


def test_all_samples_are_charged() -> None:
    desk = Desk(tokens_per_minute=1000)
    desk.admit(make_request("a", 100, 50, n=3))
    assert desk.tokens_left() == 1000 - 100 - 3 * 50


def test_what_was_not_generated_goes_back_at_the_end() -> None:
    desk = Desk(tokens_per_minute=1000)
    request = make_request("a", 100, 500)
    desk.admit(request)
    assert desk.tokens_left() == 400
    desk.end(request, output=20)
    assert desk.tokens_left() == 880


def test_without_max_tokens_the_mean_is_taken_and_settled_at_the_end() -> None:
    desk = Desk(tokens_per_minute=1000)
    desk.mean_output_tokens = 30.4
    request = Request(id="a", model="simulated", prompt_token_ids=[1] * 100)
    desk.admit(request)
    assert desk.tokens_left() == 870
    desk.end(request, output=200)
    assert desk.tokens_left() == 700


def test_a_refusal_by_somebody_else_is_not_charged() -> None:
    desk = Desk(requests_per_minute=10, tokens_per_minute=1000)
    request = make_request("a", 100, 50)
    desk.admit(request)
    desk.end(request, output=0, reason="rejected")
    assert desk.tokens_left() == 1000
    assert desk.policy._buckets["anonymous"][0].level(0.0) == 10


def test_a_refused_twin_of_a_running_request_gives_nothing_back() -> None:
    desk = Desk(tokens_per_minute=1000)
    desk.admit(make_request("a", 100, 50))
    desk.end(make_request("a", 100, 50), output=0, reason="rejected")
    assert desk.tokens_left() == 850


def test_a_request_larger_than_the_bucket_goes_when_it_is_full() -> None:
    desk = Desk(tokens_per_minute=100)
    assert isinstance(desk.admit(make_request("big", 300, 50)), Admit)
    assert desk.tokens_left() == -250
    answer = desk.admit(make_request("next", 10, 10))
    assert isinstance(answer, Reject)
    assert answer.limits["x-ratelimit-remaining-tokens"] == "0"
    assert answer.retry_after_seconds == pytest.approx(270 * 60 / 100)


def test_only_so_many_tenants_are_remembered() -> None:
    desk = Desk(requests_per_minute=1, max_tenants=3)
    for tenant in "abcd":
        desk.admit(make_request(tenant, tenant=tenant))
    assert list(desk.policy._buckets) == ["b", "c", "d"]
    request = make_request("late", tenant="a")
    desk.end(request, output=1)  # nobody knows of it any more
    assert list(desk.policy._buckets) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("requests_per_minute", "taken", "reset"), [(6000, 12, "120ms"), (60, 8, "8s"), (1, 1, "1m0s"), (100, 90, "54s")]
)
def test_times_are_written_as_openai_does(requests_per_minute: int, taken: int, reset: str) -> None:
    desk = Desk(requests_per_minute=requests_per_minute)
    for i in range(taken):
        answer = desk.admit(make_request(f"r{i}"))
    assert answer.limits["x-ratelimit-reset-requests"] == reset


class Refuses:
    @hookimpl
    def admit_request(self) -> Reject:
        return Reject("closed", 5.0)


def test_in_the_engine_charges_are_settled() -> None:
    policy = TokenBucket(TokenBucketOptions(tokens_per_minute=1000), 0)
    run = Run(policy)
    run.submit(make_request("a", 10, 20), make_request("b", 10, 500))
    run.step(3)
    run.engine.cancel("b")
    run.finish()
    used = (10 + 20) + (10 + 3)
    left = policy._buckets["anonymous"][1].level(run.clock.now())
    assert 1000 - used <= left <= 1000 - used + run.clock.now() * 1000 / 60
    assert not policy._charges


def test_in_the_engine_nothing_is_charged_for_what_another_policy_refuses() -> None:
    policy = TokenBucket(TokenBucketOptions(), 0)
    run = Run(policy, Refuses()).finish(make_request("a", 10, 20))
    assert run.simulation.rejected["a"].limits["x-ratelimit-remaining-requests"] == "599"
    assert policy._buckets["anonymous"][0].level(run.clock.now()) == 600
    assert not policy._charges


events = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 80), st.integers(1, 80), st.floats(0, 1), st.sampled_from("ab")),
    min_size=1,
    max_size=80,
)


@given(events, st.integers(1, 30), st.integers(50, 600))
def test_no_tenant_gets_more_than_its_limits(events: Any, requests_per_minute: int, tokens_per_minute: int) -> None:
    desk = Desk(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
    admitted: dict[str, list[tuple[float, int]]] = {"a": [], "b": []}
    for index, (pause, prompt, output, used, tenant) in enumerate(events):
        desk.now += pause
        request = make_request(f"r{index}", prompt, output, tenant=tenant)
        answer = desk.admit(request)
        if isinstance(answer, Admit):
            really = round(used * output)
            admitted[tenant].append((desk.now, prompt + really))
            desk.end(request, output=really)
        else:
            assert answer.retry_after_seconds > 0
            desk.now += answer.retry_after_seconds
            assert isinstance(desk.admit(request), Admit)
            desk.end(request, output=0, reason="rejected")  # so that it does not count
    for used_by in admitted.values():
        for first, (since, _) in enumerate(used_by):
            for last in range(first, len(used_by)):
                minutes = (used_by[last][0] - since) / 60
                assert last - first + 1 <= requests_per_minute * (1 + minutes) + 1e-3
                tokens = sum(tokens for _, tokens in used_by[first : last + 1])
                assert tokens <= tokens_per_minute * (1 + minutes) + 160 + 1e-3


@pytest.mark.parametrize("option", ["requests_per_minute=0", "tokens_per_minute=-1", "max_tenants=0"])
def test_options_out_of_range_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=r"token_bucket.*" + option.partition("=")[0]):
        Run(f"token_bucket:{option}")
