from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_engine.waiting import WaitingQueues
from tests.engine.helpers import make_sequence


def ids(sequences: list) -> list[int]:  # type: ignore[type-arg]
    return [sequence.id for sequence in sequences]


def test_queues_by_class_and_tenant_with_counts() -> None:
    queues = WaitingQueues(window=10)
    queues.add(make_sequence(1, prompt=5, tenant="a"), 1)
    queues.add(make_sequence(2, prompt=7, tenant="b"), 1)
    queues.add(make_sequence(3, prompt=9, tenant="a", class_name="batch"), 1)
    assert set(queues.queues) == {("standard", "a"), ("standard", "b"), ("batch", "a")}
    assert (len(queues), queues.num_tokens) == (3, 21)
    assert queues.queues["standard", "b"].num_tokens == 7


def test_an_empty_queue_disappears() -> None:
    queues, sequence = WaitingQueues(window=10), make_sequence(1)
    queues.add(sequence, 1)
    queues.remove(sequence)
    assert (queues.queues, len(queues), queues.num_tokens) == ({}, 0, 0)
    assert queues.get(1) is None
    assert sequence not in queues


def test_who_comes_back_takes_its_old_place() -> None:
    queues = WaitingQueues(window=10)
    for id in (2, 5, 3):
        queues.add(make_sequence(id), 1)
    assert ids(queues.window()) == [2, 3, 5]


def test_the_window_holds_for_each_queue() -> None:
    queues = WaitingQueues(window=2)
    for id in range(8):
        queues.add(make_sequence(id, tenant="ab"[id % 2]), 1)
    assert ids(queues.window()) == [0, 1, 2, 3]
    assert ids(queues.queues["standard", "a"].window()) == [0, 2]
    assert len(queues) == 8


def test_overdue_are_those_that_waited_longest() -> None:
    queues = WaitingQueues(window=10)
    for id, since in ((1, 50), (2, 10), (3, 30)):
        queues.add(make_sequence(id), since)
    assert ids(queues.overdue(109, 100, at_most=9)) == []
    assert ids(queues.overdue(110, 100, at_most=9)) == [2]
    assert ids(queues.overdue(200, 100, at_most=9)) == [2, 3, 1]
    assert ids(queues.overdue(200, 100, at_most=2)) == [2, 3]
    assert ids(queues.overdue(200, 100, at_most=9)) == [2, 3, 1]


moves = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=200)


@given(moves, st.integers(1, 12))
def test_any_history_agrees_with_a_plain_dict(history: list[tuple[int, bool]], window: int) -> None:
    queues = WaitingQueues(window)
    sequences = [make_sequence(id, prompt=id + 1, tenant="abc"[id % 3]) for id in range(10)]
    since: dict[int, int] = {}
    for iteration, (id, rejoins_early) in enumerate(history):
        if id in since:
            queues.remove(sequences[id])
            del since[id]
        else:
            since[id] = iteration // 2 if rejoins_early else iteration
            queues.add(sequences[id], since[id])
        assert len(queues) == len(since)
        assert queues.num_tokens == sum(i + 1 for i in since)
        overdue = [i for i in sorted(since, key=lambda i: (since[i], i)) if iteration - since[i] >= 5]
        assert ids(queues.overdue(iteration, 5, at_most=100)) == overdue
        assert ids(queues.overdue(iteration, 5, at_most=2)) == overdue[:2]
        by_tenant = [sorted(i for i in since if i % 3 == t)[:window] for t in range(3)]
        assert ids(queues.window()) == sorted(i for tenant in by_tenant for i in tenant)
        assert {s.id for s in queues} == set(since)


def test_coming_and_going_leaves_nothing_behind() -> None:
    queues = WaitingQueues(window=4)
    old = make_sequence(0)
    queues.add(old, 0)
    for iteration in range(5000):
        sequence = make_sequence(iteration + 1)
        queues.add(sequence, iteration)
        queues.remove(sequence)
    assert len(queues._longest) < 200
    assert ids(queues.overdue(6000, 1, at_most=5)) == [0]
