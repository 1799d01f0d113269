"""The five defaults, each alone, on views made by hand or in a small engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core_engine.budget import Budget
from core_engine.defaults import LastIn, Paged, PagedOptions, QueueLimit, QueueLimitOptions, StallFree
from core_engine.hookspecs import NoOptions
from core_engine.lab.simulate import Recorder, simulate
from core_engine.lab.workloads import Lengths, at_once, requests
from core_engine.plan import Admit, PrefillLimit, Reject, Shortage
from core_engine.request import Request, Sequence
from core_engine.testkit import simulated_engine
from tests.engine.helpers import make_sequence


def budget(**limits: Any) -> Budget:
    defaults = {"token_limit": 40, "sequences_left": 4, "blocks_left": 50, "block_size": 16, "reserve": lambda s: 0}
    return Budget(**{**defaults, **limits})


def decode(id: int) -> Sequence:
    return make_sequence(id, prompt=10, output=1, computed=10, blocks=[id], running=True)


def prefill(id: int, prompt: int) -> Sequence:
    return make_sequence(id, prompt=prompt, computed=0, running=True)


def stall_free(running: list[Sequence], waiting: list[Sequence], left: Budget) -> dict[int, int]:
    plan = StallFree(NoOptions(), 0).plan_iteration(running, waiting, left)  # type: ignore[arg-type]
    return plan.num_tokens


class TestStallFree:
    def test_decodes_come_first_then_running_prompts_then_newcomers(self) -> None:
        plan = stall_free([prefill(1, 30), decode(2), decode(3)], [make_sequence(4, prompt=50)], budget())
        assert list(plan.items()) == [(2, 1), (3, 1), (1, 30), (4, 8)]

    def test_every_decode_runs_whatever_prompts_wait(self) -> None:
        running = [decode(i) for i in range(40)]
        assert stall_free(running, [make_sequence(99, prompt=50)], budget()) == dict.fromkeys(range(40), 1)

    def test_the_first_that_finds_no_room_ends_the_boarding(self) -> None:
        waiting = [make_sequence(1, prompt=20), make_sequence(2, prompt=64), make_sequence(3, prompt=1)]
        assert stall_free([], waiting, budget(blocks_left=2, token_limit=100)) == {1: 20}

    def test_one_that_a_gate_holds_is_passed_over(self) -> None:
        left = budget(limit=PrefillLimit(held={1: "too long"}))
        assert stall_free([], [make_sequence(1, prompt=20), make_sequence(2, prompt=5)], left) == {2: 5}


class TestLastIn:
    def test_latest_arrivals_first_for_memory(self) -> None:
        view: Any = SimpleNamespace(running=[decode(1), decode(2), decode(3)])
        assert LastIn(NoOptions(), 0).choose_victims(Shortage(kind="memory", num_blocks=1), view) == [3, 2, 1]

    def test_nobody_for_rank(self) -> None:
        view: Any = SimpleNamespace(running=[decode(1), decode(2)])
        assert not LastIn(NoOptions(), 0).choose_victims(Shortage(kind="rank", num_sequences=1), view)


class TestPaged:
    def limit(self, headroom: int, running: int, preempted: int = 0) -> PrefillLimit | None:
        view: Any = SimpleNamespace(running=[None] * running, num_preempted_this_iteration=preempted)
        return Paged(PagedOptions(headroom), 0).limit_prefill(view)

    def test_headroom_grows_with_those_who_run(self) -> None:
        limit = self.limit(2, running=5)
        assert limit is not None
        assert (limit.keep_free_blocks, limit.new_sequences) == (10, None)

    def test_nothing_starts_after_a_preemption(self) -> None:
        limit = self.limit(1, running=5, preempted=1)
        assert limit is not None
        assert limit.new_sequences == 0

    def test_without_headroom_it_has_no_opinion(self) -> None:
        assert self.limit(0, running=5) is None

    def test_headroom_keeps_decodes_from_preempting_each_other(self) -> None:
        def preemptions(headroom: int) -> int:
            engine, clock = simulated_engine([f"paged:headroom={headroom}"], num_blocks=16, block_size=8)
            wanted = requests([Lengths(10, 20)] * 20, seed=0, vocab_size=1000)
            simulate(engine, clock, at_once(wanted))
            return engine.state.num_preemptions

        assert preemptions(2) < preemptions(0)


class TestQueueLimit:
    def answer(self, prompt: int = 10, n: int = 1, options: QueueLimitOptions | None = None, **view: Any) -> Any:
        values = {"num_waiting": 3, "num_waiting_tokens": 50, "requests_per_second": 2.0, "tokens_per_second": 10.0}
        request = Request(id="r", model="m", prompt_token_ids=[1] * prompt, n=n)
        policy = QueueLimit(options or QueueLimitOptions(max_requests=4, max_tokens=100), 0)
        return policy.admit_request(request, SimpleNamespace(**{**values, **view}))  # type: ignore[arg-type]

    def test_admits_below_both_limits(self) -> None:
        assert isinstance(self.answer(), Admit)
        assert isinstance(self.answer(prompt=50), Admit)

    def test_rejects_beyond_the_requests_with_the_time_until_there_is_room(self) -> None:
        rejection = self.answer(prompt=1, n=11)
        assert isinstance(rejection, Reject)
        assert rejection.reason == "queue_full"
        assert rejection.retry_after_seconds == 5  # 10 too many at 2 a second

    def test_rejects_beyond_the_tokens_likewise(self) -> None:
        rejection = self.answer(prompt=110)
        assert isinstance(rejection, Reject)
        assert rejection.retry_after_seconds == 6  # 60 too many at 10 a second

    def test_the_longer_of_both_times_counts(self) -> None:
        assert self.answer(prompt=50, n=5).retry_after_seconds == 20

    @pytest.mark.parametrize(("rate", "seconds"), [(0.0, 1.0), (1e-9, 60.0), (1e9, 1.0)])
    def test_the_time_is_a_sensible_one_at_any_rate(self, rate: float, seconds: float) -> None:
        assert self.answer(n=2, requests_per_second=rate).retry_after_seconds == seconds

    def test_an_empty_queue_takes_anything(self) -> None:
        assert isinstance(self.answer(prompt=10_000, n=50, num_waiting=0, num_waiting_tokens=0), Admit)

    def test_in_the_engine_the_time_follows_from_the_measured_rate(self) -> None:
        recorder = Recorder()
        engine, clock = simulated_engine(["queue_limit:max_requests=4", recorder], sequence_limit=2, num_blocks=8)
        for request in requests([Lengths(20, 8)] * 2, seed=0, vocab_size=1000, prefix="early"):
            engine.submit(request)
        engine.step()
        for request in requests([Lengths(20, 8)] * 9, seed=1, vocab_size=1000, prefix="late"):
            engine.submit(request)
        output = engine.step()
        assert [a.request_id for a in output.accepted] == [f"late-{i}" for i in range(4)]
        assert [r.request_id for r in output.rejected] == [f"late-{i}" for i in range(4, 9)]
        assert {r.reason for r in output.rejected} == {"queue_full"}
        assert all(r.retry_after_seconds is not None and r.retry_after_seconds >= 1 for r in output.rejected)
        assert clock.now() > 0
