from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from core_engine.lab.simulate import Recorder
from core_engine.plan import IterationRecord
from tests.engine.test_iterations import make_request, run, with_recorder
from tests.simulation.support import Machine, Workload, machines, workloads


def tokens(recorder: Recorder) -> list[dict[int, int]]:
    return [record.num_tokens for record in recorder.records()]


def test_whole_prompts_in_one_iteration_beside_decodes() -> None:
    engine, recorder = with_recorder("orca")
    engine.submit(make_request("a", prompt=30, output=4))
    engine.step()
    run(engine, make_request("b", prompt=50, output=2))
    assert tokens(recorder)[:3] == [{0: 30}, {0: 1, 1: 50}, {0: 1, 1: 1}]


def test_stops_at_the_first_prompt_that_does_not_fit() -> None:
    engine, recorder = with_recorder("orca", token_limit=64)
    run(engine, make_request("a", 30, 2), make_request("b", 40, 2), make_request("c", 5, 2))
    assert tokens(recorder)[:2] == [{0: 30}, {0: 1, 1: 40, 2: 5}]


def test_max_batch_bounds_the_sequences_of_an_iteration() -> None:
    engine, recorder = with_recorder("orca:max_batch=2")
    simulation = run(engine, *(make_request(name, output=3) for name in "abc"))
    assert max(len(planned) for planned in tokens(recorder)) == 2
    assert simulation.ended == {"a": 3, "b": 3, "c": 6}


def test_a_start_reserves_prompt_and_max_tokens() -> None:
    engine, recorder = with_recorder("orca", num_blocks=9, block_size=8)
    run(engine, make_request("a", prompt=10, output=30), make_request("b", prompt=10, output=30))
    first = recorder.records()[0]
    assert first.num_free_blocks == 9 - 5
    assert first.started == (0,)
    assert first.shortages == {"take": 1}
    assert engine.state.num_preemptions == 0


def test_a_reservation_that_finds_no_room_waits_for_it() -> None:
    engine, recorder = with_recorder("orca", num_blocks=9, block_size=8)
    simulation = run(engine, make_request("a", 10, 30), make_request("b", 10, 30), make_request("c", 4, 4))
    assert [record.started for record in recorder.records() if record.started] == [(0,), (1, 2)]
    assert simulation.ended["a"] == 30
    assert simulation.first_tokens["c", 0] == 31


def test_a_predicted_reservation_is_smaller_and_may_preempt() -> None:
    engine, recorder = with_recorder("orca:output=predicted", "paged:headroom=0", num_blocks=8, block_size=8)
    run(engine, *(make_request(f"short{i}", prompt=10, output=1) for i in range(20)))
    simulation = run(engine, make_request("a", 10, 40), make_request("b", 10, 40))
    both = next(record for record in recorder.records() if {20, 21} <= record.num_tokens.keys())
    assert both.num_free_blocks >= 3
    assert engine.state.num_preemptions > 0
    assert {len(token_ids) for token_ids in simulation.token_ids.values()} == {40}


def iterations_run(records: list[IterationRecord]) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The iterations in which each sequence ran, and the one in which it finished."""
    ran: dict[int, list[int]] = {}
    finished: dict[int, int] = {}
    for record in records:
        for sequence in record.num_tokens:
            ran.setdefault(sequence, []).append(record.iteration)
        finished.update(dict.fromkeys(record.finished, record.iteration))
    return ran, finished


@given(machines().flatmap(lambda machine: st.tuples(st.just(machine), workloads(machine))), st.integers(1, 6))
def test_an_earlier_arrival_has_run_at_least_as_often_as_a_later_one(
    case: tuple[Machine, Workload], max_batch: int
) -> None:
    machine, workload = case
    recorder = Recorder()
    shown = min(max_batch, machine.waiting_window)  # of a class the policy sees no more
    engine, _ = machine.engine([f"orca:max_batch={shown}", recorder], max_wait_iterations=1 << 40)
    workload.run(engine, 100_000)
    records = recorder.records()
    ran, finished = iterations_run(records)
    draw = random.Random(0)
    for record in draw.sample(records, min(len(records), 30)):
        unfinished = [s for s in sorted(finished) if finished[s] > record.iteration]
        counts = [sum(i <= record.iteration for i in ran.get(s, [])) for s in unfinished]
        assert counts == sorted(counts, reverse=True)
    assert engine.state.num_preemptions == 0
