from __future__ import annotations

from typing import Any

import pytest

from core_engine.clock import VirtualClock
from core_engine.errors import ConfigurationError
from core_engine.hookspecs import hookimpl
from core_engine.panel import BadAnswer, Panel, PolicyFault
from core_engine.policy_set import PolicySet
from core_engine.selection import NamedPolicy


class Ranks:
    """Answers what it is told to, and remembers that it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked = 0

    @hookimpl
    def rank_sequences(self, view: object) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Listens:
    def __init__(self, raises: bool = False) -> None:
        self.heard: list[object] = []
        self.raises = raises

    @hookimpl
    def on_request_finished(self, outcome: object) -> None:
        self.heard.append(outcome)
        if self.raises:
            raise ValueError("no")


def panel(*policies: Any, defaults: Any = (), **options: Any) -> Panel:
    named = [NamedPolicy(f"p{i}", policy) for i, policy in enumerate(policies)]
    behind = [NamedPolicy(f"d{i}", default) for i, default in enumerate(defaults)]
    return Panel(PolicySet(named, behind), VirtualClock(), **options)


def positive(answer: Any) -> Any:
    if answer < 0:
        raise BadAnswer("negative")
    return answer * 10


def test_the_first_answer_counts_in_configuration_order() -> None:
    first, second, third = Ranks(None), Ranks(2), Ranks(3)
    assert panel(first, second, third).ask_one("rank_sequences", positive, None) == 20
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


def test_defaults_are_asked_last() -> None:
    default = Ranks(1)
    asked = panel(Ranks(None), defaults=[default])
    assert asked.ask_one("rank_sequences", positive, None) == 10
    assert panel(Ranks(5), defaults=[default]).ask_one("rank_sequences", positive, None) == 50
    assert default.asked == 1


def test_naming_a_default_replaces_it() -> None:
    mine, builtin = Ranks(5), Ranks(1)
    asked = Panel(PolicySet([NamedPolicy("fcfs", mine)], [NamedPolicy("fcfs", builtin)]), VirtualClock())
    assert asked.ask_one("rank_sequences", positive, None) == 50
    assert asked.set.names()["rank_sequences"] == ["fcfs"]


def test_zero_and_empty_are_answers() -> None:
    assert panel(Ranks(0), Ranks(3)).ask_one("rank_sequences", positive, None) == 0


@pytest.mark.parametrize("answer", [-1, "words", RuntimeError("boom")])
def test_after_a_wrong_answer_the_next_is_asked(answer: Any) -> None:
    asked = panel(Ranks(answer), Ranks(2))
    assert asked.ask_one("rank_sequences", positive, None) == 20
    assert asked.faults == {"p0": 1}
    assert asked.num_faults == 1


def test_ask_all_leaves_out_the_silent_and_the_wrong() -> None:
    asked = panel(Ranks(1), Ranks(None), Ranks(-1), Ranks(3))
    assert asked.ask_all("rank_sequences", positive, None) == [("p0", 10), ("p3", 30)]


def test_everyone_hears_although_one_raises() -> None:
    first, second = Listens(raises=True), Listens()
    told = panel(first, second)
    told.tell("on_request_finished", "request", "outcome", "view")
    assert first.heard == second.heard == ["outcome"]
    assert told.faults == {"p0": 1}


def test_strict_raises_and_names_the_culprit() -> None:
    with pytest.raises(PolicyFault, match=r"p0.*boom"):
        panel(Ranks(RuntimeError("boom")), strict=True).ask_one("rank_sequences", positive, None)


def still_asked(panel: Panel) -> list[str]:
    return panel.set.names()["rank_sequences"]


class TestRetirement:
    def asked(self, policy: Ranks, iterations: list[int], **options: Any) -> Panel:
        found = panel(policy, Ranks(1), **options)
        for iteration in iterations:
            found.iteration = iteration
            found.ask_one("rank_sequences", positive, None)
        return found

    def test_after_more_than_three_faults_in_a_thousand_iterations(self) -> None:
        policy = Ranks(-1)
        found = self.asked(policy, [1, 2, 3, 4, 5])
        assert policy.asked == 4
        assert still_asked(found) == ["p1"]
        assert found.version == 2

    def test_not_after_three(self) -> None:
        found = self.asked(Ranks(-1), [1, 2, 3])
        assert still_asked(found) == ["p0", "p1"]
        assert found.version == 1

    def test_not_when_they_are_far_apart(self) -> None:
        policy = Ranks(-1)
        assert still_asked(self.asked(policy, [1, 400, 800, 1200, 1600, 2000, 2400])) == ["p0", "p1"]
        assert policy.asked == 7

    def test_bounds_are_configurable(self) -> None:
        assert still_asked(self.asked(Ranks(-1), [1], max_faults=0)) == ["p1"]
        assert still_asked(self.asked(Ranks(-1), [1, 3, 5], max_faults=1, window=2)) == ["p0", "p1"]
        assert still_asked(self.asked(Ranks(-1), [1, 2], max_faults=1, window=2)) == ["p1"]

    def test_never_of_a_default(self) -> None:
        default = Ranks(-1)
        found = panel(defaults=[default])
        for _ in range(10):
            found.ask_one("rank_sequences", positive, None)
        assert default.asked == 10
        assert still_asked(found) == ["d0"]

    def test_of_one_that_raises_while_it_is_told(self) -> None:
        listener = Listens(raises=True)
        found = panel(listener)
        for outcome in range(6):
            found.tell("on_request_finished", "request", outcome, "view")
        assert listener.heard == [0, 1, 2, 3]


def test_only_named_arguments_are_passed_whatever_their_order() -> None:
    class Backwards:
        @hookimpl
        def on_request_finished(self, view: object, request: object) -> None:
            self.heard = (view, request)

    policy = Backwards()
    panel(policy).tell("on_request_finished", "request", "outcome", "view")
    assert policy.heard == ("view", "request")


def test_an_unknown_argument_is_refused_at_start() -> None:
    class Wrong:
        @hookimpl
        def rank_sequences(self, view: object, weather: object) -> None:
            """Asks for what the hook doesn't have."""

    with pytest.raises(ConfigurationError, match="weather"):
        panel(Wrong())


def test_an_unknown_hook_is_refused_at_start() -> None:
    class Wrong:
        @hookimpl
        def rank_sequence(self, view: object) -> None:
            """Misspelt."""

    with pytest.raises(ConfigurationError, match="rank_sequence"):
        panel(Wrong())


def test_counters_drain() -> None:
    asked = panel(Ranks(-1), Ranks(1))
    asked.ask_one("rank_sequences", positive, None)
    faults, seconds = asked.drain_counters()
    assert faults == {"p0": 1}
    assert set(seconds) == {"rank_sequences/p0", "rank_sequences/p1"}
    assert asked.drain_counters() == ({}, {})
    assert asked.num_faults == 1
