"""The kit passes what is sound and proves what is not, by a small case that fails again when replayed."""

from __future__ import annotations

import pytest

from core_engine.errors import ConfigurationError
from core_engine.testkit import CounterExample, Report, check_policy, replay
from tests.testkit import bad

FEW = 12


def check(policy: type, *, cost: bool = False) -> Report:
    return check_policy(policy, num_workloads=FEW, cost=cost)


@pytest.mark.parametrize(
    ("policy", "kind", "words"),
    [
        (bad.NeverFinishes, "standstill", "computed nothing"),
        (bad.Starves, "starvation", "boarded only by the engine's own bound"),
        pytest.param(bad.StarvesWhoRuns, "starvation", "iterations", marks=pytest.mark.full),
        pytest.param(bad.HoldsResults, "starvation", "held back", marks=pytest.mark.full),
        (bad.HoldsEverybody, "gates", "passes over gates"),
        (bad.OverCommits, "fault", "more than the budget has"),
        (bad.NonDeterministic, "not_deterministic", "differ from iteration"),
        (bad.Raises, "fault", "rank_sequences raised KeyError('no such thing')"),
        (bad.Exits, "fault", "rank_sequences raised SystemExit"),
        (bad.Remembers, "leak", "remembers"),
        (bad.Refuses, "refusal", "refused 20 times (later)"),
        (bad.LosesBlocks, "fault", "granted"),
        pytest.param(bad.BreaksItsPromise, "starvation", "promises 40", marks=pytest.mark.full),
    ],
)
def test_a_bad_policy_fails_with_a_counter_example(policy: type, kind: str, words: str) -> None:
    report = check(policy)
    assert not report.passed
    assert not report.checks[-1].passed
    assert all(check.passed for check in report.checks[:-1])
    example = report.counter_example
    assert example is not None
    assert example.finding.kind == kind, example.finding
    assert words in example.finding.message
    assert words in str(report)
    again = CounterExample.from_json(example.to_json())
    assert again == example
    found = replay(again, policy)
    assert found is not None
    assert found.kind == kind
    assert replay(again, "fcfs") is None


def test_what_goes_by_chance_shows_in_every_replay() -> None:
    example = check(bad.NonDeterministic).counter_example
    assert example is not None
    assert all(replay(example, bad.NonDeterministic) is not None for _ in range(20))


def test_the_culprit_is_named_though_another_asked_it() -> None:
    example = check(bad.RaisesOnTheWay).counter_example
    assert example is not None
    assert example.finding.message == "policy raisesontheway: reserve_blocks raised KeyError('no such thing')"


def test_a_policy_that_can_not_come_while_requests_run_fails() -> None:
    example = check(bad.ExpectsToHaveSeenAll).counter_example
    assert example is not None
    assert example.finding.kind == "fault"
    assert example.workload is not None
    assert len(example.workload.swaps) == 1
    assert len(example.workload.wishes) == 1


def test_a_slow_policy_fails_with_the_size_at_which_it_does() -> None:
    report = check(bad.Slow, cost=True)
    assert [check.name for check in report.checks if not check.passed] == ["cost"]
    example = report.counter_example
    assert example is not None
    assert example.finding.kind == "slow"
    assert "times as long as all of the defaults'" in example.finding.message
    assert example.num_sequences in (64, 256, 1024)
    found = replay(CounterExample.from_json(example.to_json()), bad.Slow)
    assert found is not None
    assert found.kind == "slow"


def test_the_order_of_a_set_shows_in_another_process() -> None:
    policy = "tests.testkit.bad:OrderOfASet"
    report = check_policy(policy, num_workloads=10, cost=False)
    assert [check.passed for check in report.checks] == [True, False]
    assert "another process" in report.checks[-1].summary
    assert report.counter_example is not None
    assert replay(report.counter_example) is not None
    assert replay(report.counter_example, "fcfs") is None


def test_counter_examples_are_small() -> None:
    example = check(bad.Raises).counter_example
    assert example is not None
    assert example.workload is not None
    assert [(wish.prompt_tokens, wish.n) for wish in example.workload.wishes] in ([(1, 2)], [(1, 1), (1, 1)])
    example = check(bad.NeverFinishes).counter_example
    assert example is not None
    assert example.workload is not None
    assert [wish.prompt_tokens for wish in example.workload.wishes] == [1]


def test_the_report_says_what_was_checked() -> None:
    report = check_policy("orca:max_batch=4", num_workloads=FEW, processes=False)
    assert report.passed, str(report)
    assert [check.name for check in report.checks] == ["workloads", "determinism", "starvation", "memory", "cost"]
    assert report.counter_example is None
    assert {wait.flood for wait in report.waits} >= {"more of the same", "more urgent requests", "another tenant"}
    assert [cost.num_sequences for cost in report.costs] == [64, 256, 1024]
    assert str(report).startswith("orca:max_batch=4: passed")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("orka", "did you mean orca"),
        ("orca:max_batch=0", "max_batch"),
        ("tests.testkit.bad:Nobody", "no class 'Nobody' in module 'tests.testkit.bad'"),
        ("no.such.module:Policy", "no class 'Policy' in module 'no.such.module'"),
        (int, "states no range of hookspecs"),
    ],
)
def test_what_is_no_policy_is_named(policy: str | type, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_policy(policy)
