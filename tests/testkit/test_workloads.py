"""Random workloads, floods, and how a failing one is made small."""

from __future__ import annotations

import msgspec

from core_engine.testkit.cost import SIZES, Cost, measure
from core_engine.testkit.memory import num_remembered
from core_engine.testkit.shrinking import shrink
from core_engine.testkit.subject import subject
from core_engine.testkit.trial import run_trial
from core_engine.testkit.workloads import Flood, Machine, Wish, Workload, floods, random_workload

SEEDS = range(200)


def test_a_random_workload_fits_its_machine_and_is_the_same_again() -> None:
    for seed in SEEDS:
        workload = random_workload(seed)
        machine = workload.machine
        assert workload == random_workload(seed) == msgspec.json.decode(msgspec.json.encode(workload), type=Workload)
        assert machine.token_limit >= machine.sequence_limit
        for wish in workload.wishes:
            assert wish.prompt_tokens + wish.output_tokens <= machine.num_blocks * machine.block_size


def test_random_workloads_are_of_all_kinds() -> None:
    workloads = [random_workload(seed) for seed in SEEDS]
    wishes = [wish for workload in workloads for wish in workload.wishes]
    assert {wish.tenant for wish in wishes} == {"a", "b", "c"}
    assert {wish.request("r", 0).class_name for wish in wishes} == {"interactive", "standard", "batch"}
    assert {wish.n for wish in wishes} == {1, 2, 3}
    assert any(wish.cancel_at for wish in wishes)
    assert any(wish.common_tokens for wish in wishes)
    assert any(workload.swaps for workload in workloads)
    preempted = [w for w in workloads[:60] if b'"preempted":{"' in b"".join(run_trial(subject("fcfs"), w).records)]
    assert preempted


def test_requests_begin_alike_as_far_as_they_are_told_to() -> None:
    wish = Wish(prompt_tokens=40, common_tokens=20, output_tokens=3)
    first, second = wish.request("a", 1), wish.request("b", 2)
    assert first.prompt_token_ids[:20] == second.prompt_token_ids[:20]
    assert not any(a == b for a, b in zip(first.prompt_token_ids[20:], second.prompt_token_ids[20:], strict=True))


def test_a_flood_goes_on_until_the_wishes_are_answered() -> None:
    workload = floods(512)["more of the same"]
    trial = run_trial(subject("fcfs"), workload)
    assert trial.finding is None
    assert 30 < trial.iterations < 512
    assert trial.num_boardings > 2 * len(workload.wishes)


def test_a_trial_ends_after_its_iterations() -> None:
    workload = Workload(flood=Flood(clients=2, wish=Wish(prompt_tokens=3, output_tokens=3)), iterations=40)
    seen: list[int] = []
    trial = run_trial(subject("fcfs"), workload, watch=lambda iteration, policy: seen.append(iteration))
    assert (trial.finding, trial.iterations, seen) == (None, 40, list(range(1, 41)))


def test_the_policy_comes_and_goes() -> None:
    workload = Workload(wishes=(Wish(prompt_tokens=4, output_tokens=20),), swaps=(3, 6, 9))
    records = run_trial(subject("orca"), workload).records
    versions = [msgspec.json.decode(record)["policy_version"] for record in records]
    assert versions[:10] == [1, 1, 2, 2, 2, 3, 3, 3, 4, 4]


def test_shrinking_keeps_what_matters_and_nothing_else() -> None:
    def fails(workload: Workload) -> bool:
        return any(wish.tenant == "b" and wish.prompt_tokens >= 5 for wish in workload.wishes)

    start = next(w for w in map(random_workload, SEEDS) if len(w.wishes) > 5 and fails(w))
    small = shrink(start, fails)
    assert small == Workload(
        machine=Machine(max_wait_iterations=start.machine.max_wait_iterations),
        wishes=(Wish(tenant="b", prompt_tokens=5),),
    )


def test_shrinking_of_floods_and_swaps() -> None:
    def fails(workload: Workload) -> bool:
        clients = workload.flood.clients if workload.flood is not None else 0
        return clients >= 3 and max(workload.swaps, default=0) >= 7

    flood = Flood(clients=8, wish=Wish(prompt_tokens=30, output_tokens=9, priority=-10))
    small = shrink(Workload(wishes=(Wish(at=20),), flood=flood, swaps=(4, 9, 30)), fails)
    assert small == Workload(flood=Flood(clients=3, wish=Wish()), swaps=(7,))


def test_shrinking_stops_after_its_tries() -> None:
    tried: list[Workload] = []

    def fails(workload: Workload) -> bool:
        tried.append(workload)
        return False

    start = random_workload(3)
    assert shrink(start, fails, max_tries=4) is start
    assert len(tried) == 4


def test_cost_is_that_of_the_policys_own_hooks() -> None:
    cost = measure(subject("prefix_cache"), 8)
    assert cost.num_sequences == 8
    assert cost.policy_seconds == 0.0  # it is asked at start only
    assert cost.defaults_seconds > 0.0
    assert not cost.is_excessive
    assert Cost(64, policy_seconds=1.0, defaults_seconds=0.001).is_excessive
    assert SIZES == (64, 256, 1024)


def test_remembered_things_are_counted_wherever_they_are_kept() -> None:
    class Keeps:
        def __init__(self) -> None:
            self.tenants = {"a": [1, 2, 3], "b": []}
            self.itself = self

    keeps = Keeps()
    before = num_remembered(keeps)
    keeps.tenants["b"] += range(100)
    assert num_remembered(keeps) == before + 100
