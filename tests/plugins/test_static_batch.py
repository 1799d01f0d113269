from __future__ import annotations

from core_engine.lab.simulate import Recorder
from tests.engine.test_iterations import make_request, run, with_recorder


def tokens(recorder: Recorder) -> list[dict[int, int]]:
    return [record.num_tokens for record in recorder.records()]


def test_all_members_are_delivered_when_the_last_is_done() -> None:
    engine, _ = with_recorder("static_batch")
    simulation = run(engine, make_request("a", output=2), make_request("b", output=9), make_request("c", output=4))
    assert simulation.ended == {"a": 9, "b": 9, "c": 9}
    assert set(simulation.first_tokens.values()) == {9}
    assert [len(simulation.token_ids[name, 0]) for name in "abc"] == [2, 9, 4]


def test_nobody_joins_a_batch_that_runs() -> None:
    engine, recorder = with_recorder("static_batch")
    engine.submit(make_request("a", output=6))
    engine.step()
    simulation = run(engine, make_request("late", output=1))
    assert simulation.first_tokens["late", 0] == 6
    assert [record.started for record in recorder.records() if record.started] == [(0,), (1,)]


def test_batch_size_bounds_the_members() -> None:
    engine, recorder = with_recorder("static_batch:batch_size=2")
    run(engine, *(make_request(name, output=3) for name in "abcde"))
    assert [record.started for record in recorder.records() if record.started] == [(0, 1), (2, 3), (4,)]


def test_the_engines_seats_bound_the_members_too() -> None:
    engine, recorder = with_recorder("static_batch", sequence_limit=2)
    run(engine, *(make_request(name, output=3) for name in "abc"))
    assert [record.started for record in recorder.records() if record.started] == [(0, 1), (2,)]


def test_prompts_over_the_token_limit_start_in_the_following_iterations_before_any_decode() -> None:
    engine, recorder = with_recorder("static_batch", token_limit=20)
    run(engine, *(make_request(name, prompt=15, output=2) for name in "abc"))
    assert tokens(recorder) == [{0: 15}, {1: 15}, {2: 15}, {0: 1, 1: 1, 2: 1}]


def test_a_prompt_longer_than_the_token_limit_runs_alone() -> None:
    engine, recorder = with_recorder("static_batch", token_limit=20)
    run(engine, make_request("a", 15, 2), make_request("b", 50, 2))
    assert tokens(recorder) == [{0: 15}, {1: 50}, {0: 1, 1: 1}]


def test_finished_rows_cost_nothing_or_an_idle_row_each() -> None:
    def idle_rows(policy: str) -> list[int]:
        engine, recorder = with_recorder(policy)
        run(engine, make_request("a", output=1), make_request("b", output=2), make_request("c", output=4))
        return [record.idle_rows for record in recorder.records()]

    assert idle_rows("static_batch") == [0, 0, 0, 0]
    assert idle_rows("static_batch:keep_finished_rows=true") == [0, 1, 2, 2]


def test_padding_costs_each_prompt_the_rows_of_the_longest_one() -> None:
    engine, recorder = with_recorder("static_batch:pad=true")
    run(engine, make_request("a", 10, 3), make_request("b", 4, 3), make_request("c", 7, 3))
    assert [record.idle_rows for record in recorder.records()] == [9, 0, 0]


def test_padding_that_finds_no_room_is_executed_later() -> None:
    engine, recorder = with_recorder("static_batch:pad=true", token_limit=16)
    run(engine, make_request("a", 12, 3), make_request("b", 2, 3))
    records = recorder.records()
    assert [sum(record.num_tokens.values()) + record.idle_rows for record in records] == [16, 10, 2]
    assert sum(record.idle_rows for record in records) == 10


def test_reserve_max_takes_the_blocks_of_the_whole_output_at_once() -> None:
    def free_blocks(policy: str) -> list[int]:
        engine, recorder = with_recorder(policy, num_blocks=20, block_size=8)
        run(engine, make_request("a", 10, 30), make_request("b", 10, 30))
        return [record.num_free_blocks for record in recorder.records()]

    assert free_blocks("static_batch")[0] == 16
    assert set(free_blocks("static_batch:reserve=max")[:-1]) == {10}


def test_only_members_that_fit_the_pool_are_chosen() -> None:
    engine, recorder = with_recorder("static_batch:reserve=max", num_blocks=11, block_size=8)
    run(engine, *(make_request(name, 10, 30) for name in "abc"))
    assert [record.started for record in recorder.records() if record.started] == [(0, 1), (2,)]
    assert engine.state.num_preemptions == 0


def test_cancelled_members_do_not_keep_the_others_waiting() -> None:
    engine, _ = with_recorder("static_batch:batch_size=2")
    for name in "abc":
        engine.submit(make_request(name, output=20))
    engine.step()
    engine.cancel("a")
    engine.step()
    engine.cancel("b")
    simulation = run(engine)
    assert simulation.outcomes["c"].finish_reason == "length"
    assert simulation.iterations <= 21


def test_a_batch_whose_members_are_all_cancelled_before_they_start_is_forgotten() -> None:
    engine, recorder = with_recorder("static_batch:batch_size=2", token_limit=10)
    for name in "ab":
        engine.submit(make_request(name, prompt=10))
    engine.step()
    for name in "ab":
        engine.cancel(name)
    engine.submit(make_request("c", output=2))
    assert run(engine).outcomes["c"].finish_reason == "length"
    assert recorder.records()[1].started == (2,)


def test_a_preempted_member_starts_again_before_anybody_new() -> None:
    engine, recorder = with_recorder("static_batch:batch_size=2", "paged:headroom=0", num_blocks=6, block_size=8)
    simulation = run(engine, *(make_request(name, prompt=10, output=20) for name in "abc"))
    starts = [sequence for record in recorder.records() for sequence in record.started]
    assert starts.count(1) > 1
    assert starts == sorted(starts)
    assert {len(token_ids) for token_ids in simulation.token_ids.values()} == {20}


def test_whom_the_engine_lets_board_rides_with_the_batch() -> None:
    engine, _ = with_recorder("static_batch:batch_size=1", max_wait_iterations=5)
    simulation = run(engine, make_request("a", output=40), make_request("late", output=3))
    assert simulation.outcomes["late"].finish_reason == "length"
    assert simulation.ended["late"] <= simulation.ended["a"]
