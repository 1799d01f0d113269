from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import ConfigurationError
from core_engine.lab.simulate import simulate
from core_engine.lab.simulated import SimulatedModel
from core_engine.lab.workloads import Arrival, poisson
from plugins.fair_share import FairShare, FairShareOptions
from tests.plugins.runs import Run, flood, make_request, modestly

TOKENS = "fair_share:charge=tokens"


def backlogs(run: Run, iterations: int, **shapes: list[tuple[int, int]]) -> None:
    """Keep every tenant's queue filled for so many iterations."""
    now = len(run.records)
    sources = {tenant: flood(f"{tenant}-at-{now}", lengths, tenant=tenant) for tenant, lengths in shapes.items()}
    for _ in range(iterations):
        for tenant, source in sources.items():
            queued = len(run.engine.state.waiting.get(("standard", tenant), ()))
            run.submit(*(next(source) for _ in range(4 - queued)))
        run.step()


def service(run: Run, tenant: str, prompt_weight: float = 1.0, output_weight: float = 2.0) -> list[float]:
    """Weighted tokens computed for the tenant by the end of each iteration."""
    total, totals = 0.0, []
    for record in run.records:
        for row in record.rows:
            if row.tenant == tenant:
                total += row.num_new_tokens * (output_weight if row.is_decode else prompt_weight)
        totals.append(total)
    return totals


class TestOrder:
    def test_tenants_take_turns_however_many_one_has_sent(self) -> None:
        run = Run(TOKENS, sequence_limit=1)
        run.submit(*(make_request(f"heavy-{i}", tenant="heavy") for i in range(6)))
        run.submit(*(make_request(f"light-{i}", tenant="light") for i in range(2)))
        run.finish()
        assert run.started() == ["heavy-0", "light-0", "heavy-1", "light-1", *(f"heavy-{i}" for i in range(2, 6))]

    def test_a_tenants_own_requests_go_by_arrival_whatever_their_class(self) -> None:
        run = Run(TOKENS, sequence_limit=1)
        run.finish(*(make_request(f"r{i}", tenant="t", class_name="ab"[i % 2]) for i in range(6)))
        assert run.started() == [f"r{i}" for i in range(6)]

    def test_several_starts_of_one_iteration_are_shared_too(self) -> None:
        run = Run(TOKENS, sequence_limit=4)
        run.submit(*(make_request(f"a{i}", tenant="a") for i in range(9)))
        run.submit(*(make_request(f"b{i}", tenant="b") for i in range(9)))
        assert run.planned(run.step()).keys() == {"a0", "b0", "a1", "b1"}

    def test_who_had_long_prompts_waits_longer(self) -> None:
        run = Run(TOKENS, sequence_limit=1, num_blocks=100, token_limit=64)
        run.submit(*(make_request(f"long-{i}", 100, 2, tenant="long") for i in range(3)))
        run.submit(*(make_request(f"short-{i}", 20, 2, tenant="short") for i in range(6)))
        run.finish()
        assert run.started()[:6] == ["long-0", *(f"short-{i}" for i in range(5))]

    def test_who_runs_goes_on(self) -> None:
        run = Run(TOKENS, sequence_limit=2).submit(*(make_request(f"a{i}", 10, 50, tenant="a") for i in range(2)))
        run.step()
        run.submit(make_request("b", tenant="b"))
        assert not run.step().preempted
        run.finish()
        assert run.engine.state.num_preemptions == 0


class TestWeights:
    def test_service_follows_the_weights(self) -> None:
        run = Run(TOKENS, sequence_limit=2, num_blocks=100)
        sources = [flood("one", [(20, 10)], tenant="one"), flood("three", [(20, 10)], tenant="three", weight=3.0)]
        for _ in range(800):
            for tenant, source in zip(("one", "three"), sources, strict=True):
                if len(run.engine.state.waiting.get(("standard", tenant), ())) < 3:
                    run.submit(next(source))
            run.step()
        assert service(run, "three")[-1] / service(run, "one")[-1] == pytest.approx(3, rel=0.1)

    def test_a_configured_weight_counts_whatever_requests_say(self) -> None:
        run = Run(TOKENS, sequence_limit=2, num_blocks=100, tenant_weights={"three": 3.0})
        backlogs(run, 800, one=[(20, 10)], three=[(20, 10)])
        assert service(run, "three")[-1] / service(run, "one")[-1] == pytest.approx(3, rel=0.1)

    def test_seconds_are_charged_by_computation(self) -> None:
        run = Run("fair_share", sequence_limit=4, num_blocks=400, token_limit=128)
        backlogs(run, 600, prompts=[(120, 2)], outputs=[(4, 60)])
        policy = run.engine._panel.set.policies[0].policy
        rates = [policy.counters[tenant] for tenant in ("prompts", "outputs")]
        assert rates[0] == pytest.approx(rates[1], rel=0.1)
        assert sum(rates) == pytest.approx(sum(record.duration_seconds for record in run.records), rel=0.2)


class TestCharges:
    def test_recomputed_tokens_are_not_charged(self) -> None:
        run = Run(TOKENS, "paged:headroom=0", num_blocks=6, block_size=8, sequence_limit=3)
        run.finish(make_request("a", 10, 25, tenant="a"), make_request("b", 10, 25, tenant="b"))
        policy = run.engine._panel.set.policies[0].policy
        assert run.engine.state.num_preemptions > 0
        # A new token at the end of a recomputation counts as one of a prompt.
        assert policy.counters == pytest.approx({"a": 10 + 2 * 24, "b": 10 + 2 * 24}, abs=2)

    def test_cached_tokens_are_free(self) -> None:
        run = Run(TOKENS, "prefix_cache", block_size=16)
        run.finish(make_request("a", 50, 1, tenant="t"))
        run.finish(make_request("b", 50, 1, like="a", tenant="t"))
        policy = run.engine._panel.set.policies[0].policy
        assert policy.counters == {"t": 50 + 2}  # 48 of the second 50 are found, the other two computed


class TestIdling:
    @pytest.mark.parametrize("rank", [TOKENS, "fair_share:credit_seconds=0"])
    def test_idling_saves_nothing_up(self, rank: str) -> None:
        run = Run(rank, sequence_limit=1)
        backlogs(run, 300, busy=[(10, 10)])
        run.submit(*(make_request(f"idle-{i}", 10, 10, tenant="idle") for i in range(10)))
        before = len(run.started())
        backlogs(run, 120, busy=[(10, 10)])
        turns = [1 if name.startswith("busy") else -1 for name in run.started()[before:]]
        assert len(turns) >= 10
        assert all(abs(sum(turns[:n])) <= 1 for n in range(len(turns)))

    def test_but_a_credit_which_a_few_requests_in_a_row_use_up(self) -> None:
        model = SimulatedModel(base_seconds=0.01, row_seconds=0, attention_pair_seconds=0, kv_token_seconds=0)
        run = Run("fair_share:credit_seconds=0.35", sequence_limit=1, model=model)
        backlogs(run, 300, busy=[(10, 10)])
        run.submit(*(make_request(f"idle-{i}", 10, 10, tenant="idle") for i in range(10)))
        before = len(run.started())
        backlogs(run, 150, busy=[(10, 10)])
        turns = [name.partition("-")[0] for name in run.started()[before:]]
        # A tenth of a second each, so that the credit goes three and a half of them far.
        assert turns[:8] == ["idle"] * 4 + ["busy", "idle"] * 2

    @pytest.mark.parametrize("options", [FairShareOptions(charge="tokens"), FairShareOptions(credit_seconds=0.01)])
    def test_tenants_that_come_and_go_are_forgotten(self, options: FairShareOptions) -> None:
        policy = FairShare(options, 0)
        run = Run(policy, sequence_limit=2)
        for i in range(300):
            run.submit(make_request(f"r{i}", 4, 3, tenant=f"tenant-{i}"))
            run.step(2)
        assert len(policy.counters) < 20
        assert len(policy._weights) < 20

    def test_of_very_many_tenants_only_so_many_are_remembered(self) -> None:
        policy = FairShare(FairShareOptions(credit_seconds=60), 0)
        run = Run(policy, sequence_limit=8)
        for i in range(0, 2000, 8):
            run.submit(*(make_request(f"r{i + j}", 4, 1, tenant=f"tenant-{i + j}") for j in range(8)))
            run.step()
        assert len(policy.counters) <= 1024 + 16


lengths = st.lists(st.tuples(st.integers(1, 150), st.integers(1, 60)), min_size=1, max_size=4)


@modestly
@given(lengths, lengths, st.integers(1, 8), st.integers(14, 40), st.sampled_from([16, 64, 200]), st.booleans())
def test_the_service_of_two_backlogged_tenants_stays_within_the_bound(
    one: list[tuple[int, int]], other: list[tuple[int, int]], seats: int, blocks: int, tokens: int, reserved: bool
) -> None:
    memory = ["reserved"] * reserved + ["paged:headroom=0"]
    limits = {"sequence_limit": min(seats, tokens), "num_blocks": blocks, "token_limit": tokens, "block_size": 16}
    run = Run(TOKENS, *memory, **limits)
    backlogs(run, 150, one=one, other=other)
    if run.engine.state.num_preemptions:
        return  # the bound holds without preemption
    differences = [a - b for a, b in zip(service(run, "one"), service(run, "other"), strict=True)]
    longest_prompt = max(prompt for prompt, _ in one + other)
    assert max(differences) - min(differences) <= 2 * max(longest_prompt, 2 * blocks * 16)


def time_to_first_token(rank: str, *, heavy: bool) -> float:
    """99th percentile for a tenant whose neighbour, if any, sends ten times as much: more than there is room for."""
    model = SimulatedModel(base_seconds=0.012, row_seconds=0.0001)
    run = Run(rank, sequence_limit=248, token_limit=256, num_blocks=2000, model=model, check_integrity=False)

    def arrivals(tenant: str, rate: float) -> Iterator[Arrival]:
        requests = flood(tenant, [(32, 16)], tenant=tenant)
        return itertools.takewhile(lambda arrival: arrival.seconds < 4, poisson(requests, rate, seed=1))

    wanted = heapq.merge(
        arrivals("light", 25), arrivals("heavy", 250) if heavy else (), key=lambda arrival: arrival.seconds
    )
    outcomes = simulate(run.engine, run.clock, wanted, max_iterations=250).outcomes.values()
    waits = sorted(
        outcome.queue_seconds + outcome.prefill_seconds
        for outcome in outcomes
        if outcome.request_id.startswith("light")
        and outcome.queue_seconds is not None
        and outcome.prefill_seconds is not None
    )
    assert len(waits) > 50
    return waits[math.ceil(0.99 * len(waits)) - 1]


def test_a_heavy_neighbour_costs_the_light_tenant_little() -> None:
    alone = time_to_first_token("fair_share", heavy=False)
    assert time_to_first_token("fair_share", heavy=True) <= 2 * alone
    assert time_to_first_token("fcfs", heavy=True) > 10 * alone


@pytest.mark.parametrize("option", ["charge=money", "prompt_weight=0", "output_weight=-1", "credit_seconds=-1"])
def test_options_out_of_range_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=r"fair_share.*" + option.partition("=")[0]):
        Run(f"fair_share:{option}")
