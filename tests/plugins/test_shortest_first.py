from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.hookspecs import hookimpl
from core_engine.request import Request
from core_engine.view import EngineView
from tests.plugins.runs import Run, alternately, cases, flood, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload


class Declared:
    """Predicts max_tokens, which is right for requests that ignore the end of sequence."""

    @hookimpl
    def predict_output_tokens(self, request: Request) -> int | None:
        return request.sampling.max_tokens


def waiting(view: EngineView) -> dict[int, int]:
    """Iteration of arrival by id, of all that wait."""
    return {s.id: s.arrival_iteration for queue in view.waiting.values() for s in queue.window()}


def check_ageing(run: Run, ageing: int) -> int:
    """Nobody started before an elder that had waited too long; returns how many were overtaken at all."""
    overtaken = 0
    for seen, record in zip(run.witness.seen, run.records, strict=True):
        for started in record.started:
            passed = [i for i in seen if i < started and i not in record.started]
            overtaken += len(passed)
            assert all(record.iteration - seen[i] < ageing for i in passed), record
    return overtaken


def test_the_shortest_goes_first() -> None:
    run = Run("shortest_first", Declared(), sequence_limit=1)
    run.finish(*(make_request(f"{output}", 10, output) for output in (30, 5, 20, 10)))
    assert run.started() == ["5", "10", "20", "30"]


def test_prompts_count_too() -> None:
    run = Run("shortest_first", Declared(), sequence_limit=1, num_blocks=100)
    run.submit(make_request("first", 10, 10))
    run.step()
    run.finish(make_request("long prompt", 600, 5), make_request("short prompt", 10, 8))
    assert run.started() == ["first", "short prompt", "long prompt"]


def test_who_runs_goes_on() -> None:
    run = Run("shortest_first", Declared(), sequence_limit=1).submit(make_request("long", 10, 60))
    run.step()
    run.finish(make_request("short", 10, 2))
    assert run.engine.state.num_preemptions == 0
    assert run.simulation.ended["long"] < run.simulation.ended["short"]


def test_the_mean_wait_is_shorter_than_by_arrival() -> None:
    def mean_wait(*policies: str | object) -> float:
        run = Run(*policies, sequence_limit=2)
        run.finish(*(make_request(f"r{i}", 10, output) for i, output in enumerate([40, 3, 25, 4, 60, 2, 30, 5] * 2)))
        return statistics.mean(outcome.queue_seconds or 0 for outcome in run.simulation.outcomes.values())

    assert mean_wait("shortest_first", Declared()) < 0.7 * mean_wait("fcfs")


@pytest.mark.parametrize("ageing", [20, 60])
def test_a_long_request_is_not_overtaken_for_ever(ageing: int) -> None:
    run = Run(f"shortest_first:ageing_iterations={ageing}", Declared(), look=waiting, sequence_limit=2)
    short: Iterator[Request] = flood("short", [(5, 3), (8, 2)])
    run.under_flood(short, until=lambda: len(run.records) == 10, backlog=3)
    run.submit(make_request("long", 40, 30))
    run.under_flood(short, until=lambda: run.has_ended("long"), backlog=3)
    starts = [record.iteration for record in run.records for i in record.started if run.names[i] == "long"]
    assert ageing < starts[0] - 10 <= ageing + 5
    assert check_ageing(run, ageing) > 0


@modestly
@given(cases, st.integers(1, 40))
def test_nobody_who_has_aged_is_overtaken(case: tuple[Machine, Workload], ageing: int) -> None:
    machine, workload = case
    if any(wish.n > 1 for wish in workload.wishes):
        return  # a sibling is held until another has computed the prompt
    policies = [f"shortest_first:ageing_iterations={ageing}", "reserved", "paged:headroom=0"]
    run = run_on(machine, *policies, Declared(), look=waiting).all_of(workload)
    check_ageing(run, ageing)


@modestly
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30)), min_size=1, max_size=5), st.integers(5, 60))
def test_nor_under_a_flood(lengths: list[tuple[int, int]], ageing: int) -> None:
    policies = [f"shortest_first:ageing_iterations={ageing}", "reserved", "paged:headroom=0"]
    run = Run(*policies, Declared(), look=waiting, sequence_limit=3, waiting_window=16)
    both = alternately(flood("r", lengths), flood("long", [(60, 30)], tenant="other"))
    run.under_flood(both, until=lambda: len(run.records) == 100, backlog=12)
    check_ageing(run, ageing)


def test_the_bound_is_shown_to_operators() -> None:
    run = Run("shortest_first:ageing_iterations=33")
    assert run.engine.describe_policies().policies[0].promised_wait_iterations == 33
