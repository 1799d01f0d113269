from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core_engine.lab.simulated import SimulatedModel
from core_engine.objectives import Objective
from core_engine.request import Request
from tests.plugins.runs import Run, alternately, cases, flood, make_request, modestly, run_on
from tests.plugins.test_shortest_first import check_ageing, waiting
from tests.simulation.support import Machine, Workload

OBJECTIVES = {
    "interactive": Objective(time_to_first_token_seconds=0.5),
    "standard": Objective(time_to_first_token_seconds=2.0),
}


def of_class(class_name: str, name: str, output: int = 5, prompt: int = 10) -> Request:
    return make_request(name, prompt, output, class_name=class_name)


def test_the_earliest_deadline_goes_first() -> None:
    run = Run("deadline", objectives=OBJECTIVES, sequence_limit=1)
    run.submit(of_class("standard", "running", 20))
    run.step(2)
    run.submit(of_class("standard", "late"))
    run.step(5)  # the class of the next one is due earlier although it comes later
    run.finish(of_class("interactive", "soon"))
    assert run.started() == ["running", "soon", "late"]


def test_an_early_arrival_of_a_patient_class_may_be_due_first() -> None:
    run = Run("deadline", objectives=OBJECTIVES, sequence_limit=1, model=SimulatedModel(base_seconds=0.1))
    run.submit(of_class("standard", "running", 19))
    run.step()
    run.submit(of_class("standard", "patient"))  # due 2 s after iteration 1
    run.step(17)
    run.finish(of_class("interactive", "impatient"))  # due half a second after iteration 18
    assert run.started() == ["running", "patient", "impatient"]


def test_classes_without_objectives_come_after_those_that_have_some() -> None:
    run = Run("deadline", objectives=OBJECTIVES, sequence_limit=1)
    run.finish(of_class("other", "first"), of_class("other", "without"), of_class("standard", "with"))
    assert run.started() == ["with", "first", "without"]


def test_the_hopeless_go_last() -> None:
    run = Run("deadline", objectives=OBJECTIVES, sequence_limit=1, model=SimulatedModel(base_seconds=0.1))
    run.submit(of_class("interactive", "running", 9))
    run.step()
    run.submit(of_class("interactive", "hopeless"))  # due half a second later, while the seat is taken
    run.step(6)
    run.finish(of_class("interactive", "hopeful"), of_class("other", "without"))
    assert run.started() == ["running", "hopeful", "without", "hopeless"]


def test_a_prompt_too_long_to_be_in_time_is_hopeless_from_the_start() -> None:
    run = Run("deadline", objectives=OBJECTIVES, sequence_limit=1, num_blocks=200)
    run.submit(of_class("interactive", "running", 60))
    run.step(50)  # the cost model knows by now
    run.finish(of_class("interactive", "hopeless", prompt=2000), of_class("interactive", "hopeful"))
    assert run.started() == ["running", "hopeful", "hopeless"]


def test_more_meet_their_objectives_than_by_arrival() -> None:
    def met(rank: str) -> int:
        run = Run(rank, objectives=OBJECTIVES, sequence_limit=2)
        run.submit(*(of_class("standard", f"s{i}", 15) for i in range(8)))
        for i in range(8):
            run.submit(of_class("interactive", f"i{i}", 3))
            run.step(8)
        run.finish()
        outcomes = run.simulation.outcomes
        return sum(OBJECTIVES["interactive"].is_met(outcomes[f"i{i}"]) for i in range(8)) + sum(
            OBJECTIVES["standard"].is_met(outcomes[f"s{i}"]) for i in range(8)
        )

    assert met("deadline") > met("fcfs")


def test_the_hopeless_are_not_overtaken_for_ever() -> None:
    run = Run("deadline:ageing_iterations=40", look=waiting, objectives=OBJECTIVES, sequence_limit=2, num_blocks=200)
    hopeful = flood("i", [(10, 3)], class_name="interactive")
    run.under_flood(hopeful, until=lambda: len(run.records) == 100, backlog=3)
    run.submit(of_class("interactive", "hopeless", prompt=2000))
    run.under_flood(hopeful, until=lambda: run.has_ended("hopeless"), backlog=3)
    starts = [record.iteration for record in run.records for i in record.started if run.names[i] == "hopeless"]
    assert 40 < starts[0] - 100 <= 45
    assert check_ageing(run, 40) > 0


objectives = st.dictionaries(
    st.sampled_from(["standard", "batch"]),
    st.builds(
        Objective,
        time_to_first_token_seconds=st.none() | st.floats(0.01, 2),
        time_per_output_token_seconds=st.none() | st.floats(0.001, 0.1),
    ),
)


@modestly
@given(cases, objectives, st.integers(1, 40))
def test_nobody_who_has_aged_is_overtaken(case: tuple[Machine, Workload], targets: Any, ageing: int) -> None:
    machine, workload = case
    if any(wish.n > 1 for wish in workload.wishes):
        return  # a sibling is held until another has computed the prompt
    policies = [f"deadline:ageing_iterations={ageing}", "reserved", "paged:headroom=0"]
    run = run_on(machine, *policies, look=waiting, objectives=targets).all_of(workload)
    check_ageing(run, ageing)


@modestly
@given(objectives, st.integers(5, 60))
def test_nor_under_a_flood(targets: Any, ageing: int) -> None:
    policies = [f"deadline:ageing_iterations={ageing}", "reserved", "paged:headroom=0"]
    run = Run(*policies, look=waiting, sequence_limit=3, waiting_window=16, objectives=targets)
    both = alternately(flood("s", [(20, 5), (60, 20)]), flood("b", [(60, 30)], class_name="batch"))
    run.under_flood(both, until=lambda: len(run.records) == 100, backlog=12)
    check_ageing(run, ageing)


def test_without_objectives_it_is_first_come_first_served() -> None:
    run = Run("deadline", sequence_limit=2)
    run.finish(*(make_request(f"r{i}") for i in range(6)))
    assert run.started() == [f"r{i}" for i in range(6)]


def test_the_bound_is_shown_to_operators() -> None:
    run = Run("deadline:ageing_iterations=33")
    assert run.engine.describe_policies().policies[0].promised_wait_iterations == 33
