"""Endless arrivals: nobody waits beyond the bound, whatever policies do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.budget import Budget
from core_engine.engine import Engine
from core_engine.hookspecs import hookimpl
from core_engine.lab.simulate import Recorder, Simulation
from core_engine.plan import PrefillLimit, Shortage
from core_engine.request import Request
from core_engine.view import EngineView, SequenceView
from tests.simulation.hostile import Hostile
from tests.simulation.support import Machine, Wish, check_budgets, hostilities

pytestmark = pytest.mark.slow

BACKLOG = 4  # requests that always wait


class Traffic:
    """Requests without end: before each iteration as many are handed in as are missing from the backlog."""

    def __init__(self, machine: Machine, longest_prompt: int, longest_output: int, seed: int) -> None:
        self.machine = machine
        self.longest_prompt = min(longest_prompt, machine.room_tokens - longest_output)
        self.longest_output = longest_output
        self._seed = seed
        self._draw = random.Random(seed)
        self._count = 0

    def __repr__(self) -> str:
        return f"Traffic({self.machine}, {self.longest_prompt}, {self.longest_output}, {self._seed})"

    @property
    def bound(self) -> int:
        """The most iterations from acceptance to the delivery of the first token.

        Of the `max_wait_iterations` it may wait, and of as many its results may be held. In between, each
        overdue request ahead and each running one may have to end, which is sure to be worked on only while
        it is the anchor: at least every fifth iteration.
        """
        chunk = min(self.machine.block_size, self.machine.token_limit)
        longest = self.longest_prompt // chunk + 2 + self.longest_output
        ahead = BACKLOG + self.machine.sequence_limit + 1
        return 2 * self.machine.max_wait_iterations + 6 * longest * ahead

    def arrivals(self, engine: Engine) -> Iterator[Request]:
        for _ in range(BACKLOG - engine.state.num_waiting):
            yield self.next_request(
                self._draw.randint(1, self.longest_prompt), self._draw.randint(1, self.longest_output)
            )

    def next_request(self, prompt: int, output: int, name: str = "r") -> Request:
        self._count += 1
        return Wish(0, prompt, output).request(f"{name}{self._count}", self._draw)

    def run(self, policies: list[Any], iterations: int) -> Simulation:
        engine, _ = self.machine.engine(policies, max_policy_faults=1 << 40)
        simulation = Simulation()
        for _ in range(iterations):
            for request in self.arrivals(engine):
                engine.submit(request)
            simulation.add(engine.step())
        return simulation

    def check(self, simulation: Simulation) -> None:
        """Everybody accepted long enough before the end has a first token, and had it in time."""
        for request_id, accepted in simulation.accepted.items():
            first = simulation.first_tokens.get((request_id, 0), simulation.iterations)
            assert first - accepted <= self.bound, request_id
        assert simulation.errors == {}
        assert len(simulation.outcomes) > 0


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    sequence_limit = draw(st.integers(1, 4))
    machine = Machine(
        num_blocks=draw(st.integers(3, 16)),
        block_size=8,
        token_limit=draw(st.integers(max(4, sequence_limit), 40)),
        sequence_limit=sequence_limit,
        max_wait_iterations=draw(st.integers(1, 30)),
        waiting_window=draw(st.sampled_from([1, 2, 256])),
    )
    return Traffic(machine, draw(st.integers(1, 50)), draw(st.integers(1, 6)), draw(st.integers(0, 1 << 32)))


@given(traffics(), hostilities())
def test_nobody_waits_beyond_the_bound(traffic: Traffic, hostile: Hostile) -> None:
    recorder = Recorder()
    simulation = traffic.run([hostile, recorder], traffic.bound * 5 // 4)
    traffic.check(simulation)
    check_budgets(traffic.machine, recorder.records())


class BigAmongSmall(Traffic):
    """One request that needs nearly the whole pool after the other, amid any number of short prompts."""

    def arrivals(self, engine: Engine) -> Iterator[Request]:
        waiting = [sequence for queue in engine.state.waiting.values() for sequence in queue]
        if not any(is_big(sequence) for sequence in waiting):
            yield self.next_request(self.longest_prompt, self.longest_output, "big")
        for _ in range(BACKLOG - sum(not is_big(sequence) for sequence in waiting)):
            yield self.next_request(self._draw.randint(1, 9), self._draw.randint(1, self.longest_output))


def is_big(sequence: SequenceView) -> bool:
    return sequence.request_id.startswith("big")


class Starver:
    """Does all that is legal to keep big requests from their first token."""

    def __init__(self, must_run: bool, plan: bool) -> None:
        self._must_run = must_run
        self._plan = plan

    def _favoured(self, view: EngineView) -> list[SequenceView]:
        everyone = [*view.running, *(s for queue in view.waiting.values() for s in queue.window())]
        return sorted((s for s in everyone if not is_big(s)), key=lambda s: -s.id)

    @hookimpl
    def rank_sequences(self, view: EngineView) -> Any:
        ids = [s.id for s in self._favoured(view)]
        return ids, set(ids) if self._must_run else set()

    @hookimpl
    def limit_prefill(self, view: EngineView) -> PrefillLimit:
        waiting = (s for queue in view.waiting.values() for s in queue.window())
        return PrefillLimit(held={s.id: "too big" for s in waiting if is_big(s)})

    @hookimpl
    def choose_victims(self, order: Sequence[int], shortage: Shortage, view: EngineView) -> list[int]:
        return sorted(order, key=lambda i: not is_big(view.get(i)))  # type: ignore[arg-type]

    @hookimpl
    def plan_iteration(self, budget: Budget, view: EngineView) -> Any:
        if not self._plan:
            return None
        for sequence in self._favoured(view):
            budget.take(sequence, sequence.num_pending_tokens)
        return budget.plan()


@pytest.mark.parametrize("must_run", [False, True])
@pytest.mark.parametrize("plan", [False, True])
@pytest.mark.parametrize(("num_blocks", "token_limit", "longest_prompt"), [(6, 16, 38), (12, 64, 86)])
def test_not_even_those_that_a_policy_is_set_against(
    must_run: bool, plan: bool, num_blocks: int, token_limit: int, longest_prompt: int
) -> None:
    machine = Machine(num_blocks, 8, token_limit, sequence_limit=6, max_wait_iterations=10)
    traffic = BigAmongSmall(machine, longest_prompt, longest_output=8, seed=num_blocks)
    simulation = traffic.run([Starver(must_run, plan)], traffic.bound * 5 // 4)
    traffic.check(simulation)
    assert any(request_id.startswith("big") for request_id in simulation.outcomes)


class Teaser:
    """Lets a big request board for one token, and then ignores it or throws it out at once."""

    def __init__(self, throw: bool) -> None:
        self._throw = throw

    @hookimpl
    def rank_sequences(self, view: EngineView) -> Any:
        waiting = (s for queue in view.waiting.values() for s in queue.window())
        return ([s.id for s in waiting if not is_big(s)] if self._throw else []), set()

    @hookimpl
    def choose_victims(self, order: Sequence[int], shortage: Shortage) -> Sequence[int]:
        return order

    @hookimpl
    def plan_iteration(self, waiting: Sequence[SequenceView], budget: Budget, view: EngineView) -> Any:
        for sequence in waiting:
            if is_big(sequence) or not view.running:
                budget.take(sequence, 1)
        return budget.plan()


@pytest.mark.parametrize("throw", [False, True])
def test_boarding_for_nothing_does_not_restart_the_wait(throw: bool) -> None:
    machine = Machine(16, 8, token_limit=16, sequence_limit=2, max_wait_iterations=30)
    traffic = BigAmongSmall(machine, longest_prompt=30, longest_output=8, seed=0)
    engine, _ = machine.engine([Teaser(throw)])
    simulation = Simulation()
    # The anchor, so that the big one isn't: it is given one token in five iterations, by the engine.
    engine.submit(traffic.next_request(4, 60))
    simulation.add(engine.step())
    big = traffic.next_request(30, 8, "big")
    for request in [big, traffic.next_request(4, 8), traffic.next_request(4, 8)]:
        engine.submit(request)
    for _ in range(60):
        simulation.add(engine.step())
    preemptions = engine.state.num_preemptions
    assert (preemptions > 10) if throw else (preemptions == 0)
    chunks = 4
    assert simulation.first_tokens[big.id, 0] <= simulation.accepted[big.id] + 30 + chunks
