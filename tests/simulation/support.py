"""Workloads and hostility drawn by hypothesis, and what must hold whatever was drawn."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from core_engine.clock import VirtualClock
from core_engine.engine import Engine
from core_engine.lab.simulate import Simulation
from core_engine.lab.simulated import SimulatedModel
from core_engine.plan import IterationRecord
from core_engine.request import Request, SamplingParams
from core_engine.testkit import VOCAB_SIZE, simulated_engine
from tests.simulation.hostile import Hostile
from tests.simulation.misdeeds import MISDEEDS


@dataclass(frozen=True)
class Machine:
    """Limits of a small engine; every request of a drawn Workload fits its pool."""

    num_blocks: int
    block_size: int
    token_limit: int
    sequence_limit: int
    max_wait_iterations: int = 4096
    waiting_window: int = 256
    max_lone_prompt_tokens: int | None = None

    @property
    def room_tokens(self) -> int:
        return self.num_blocks * self.block_size

    def engine(self, policies: list[Any], **options: Any) -> tuple[Engine, VirtualClock]:
        limits = {
            "num_blocks": self.num_blocks,
            "block_size": self.block_size,
            "token_limit": self.token_limit,
            "sequence_limit": self.sequence_limit,
            "max_wait_iterations": self.max_wait_iterations,
            "waiting_window": self.waiting_window,
            "max_lone_prompt_tokens": self.max_lone_prompt_tokens,
            "model": SimulatedModel(eos_probability=0.02),
        }
        return simulated_engine(policies, **{**limits, **options})


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    sequence_limit = draw(st.integers(1, 6))
    return Machine(
        num_blocks=draw(st.integers(2, 24)),
        block_size=draw(st.sampled_from([8, 12, 16])),
        token_limit=draw(st.integers(sequence_limit, 70)),
        sequence_limit=sequence_limit,
        max_wait_iterations=draw(st.sampled_from([3, 20, 4096])),
        waiting_window=draw(st.sampled_from([1, 3, 256])),
    )


@dataclass(frozen=True)
class Wish:
    """One request, handed in before iteration `at`; its prompt begins with `common` tokens that all begin with."""

    at: int
    prompt: int
    output: int
    n: int = 1
    tenant: str = "anonymous"
    class_name: str = "standard"
    priority: int = 0
    common: int = 0

    def request(self, name: str, draw: random.Random) -> Request:
        return Request(
            id=name,
            model="simulated",
            prompt_token_ids=[0 if i < self.common else draw.randrange(VOCAB_SIZE) for i in range(self.prompt)],
            sampling=SamplingParams(
                max_tokens=self.output, seed=draw.randrange(1 << 32), ignore_eos=draw.random() < 0.5
            ),
            n=self.n,
            tenant=self.tenant,
            class_name=self.class_name,
            priority=self.priority,
        )


@dataclass(frozen=True)
class Workload:
    """Wishes, named r0, r1, ..., and cancellations: (index, iteration before which it is cancelled)."""

    wishes: list[Wish]
    cancellations: list[tuple[int, int]] = field(default_factory=list)

    @functools.cached_property
    def requests(self) -> list[Request]:
        draw = random.Random(len(self.wishes))
        return [wish.request(f"r{index}", draw) for index, wish in enumerate(self.wishes)]

    @property
    def last_event(self) -> int:
        return max([wish.at for wish in self.wishes] + [at for _, at in self.cancellations])

    def run(self, engine: Engine, max_iterations: int) -> Simulation:
        """Hand in and cancel by iteration, idle ones included, so that the order never depends on durations."""
        simulation = Simulation()
        last = self.last_event
        while (engine.has_work or simulation.iterations < last) and simulation.iterations < max_iterations:
            iteration = simulation.iterations + 1
            if iteration <= last:
                for wish, request in zip(self.wishes, self.requests, strict=True):
                    if wish.at == iteration:
                        engine.submit(request)
                for index, at in self.cancellations:
                    if at == iteration:
                        engine.cancel(f"r{index}")
            simulation.add(engine.step())
        return simulation


@st.composite
def workloads(draw: st.DrawFn, machine: Machine, *, max_requests: int = 10) -> Workload:
    wishes = []
    at = 1
    for _ in range(draw(st.integers(1, max_requests))):
        at += draw(st.sampled_from([0, 0, 0, 1, 5, 30]))
        prompt = draw(st.integers(1, machine.room_tokens - 1))
        wish = Wish(
            at=at,
            prompt=prompt,
            output=draw(st.integers(1, min(40, machine.room_tokens - prompt))),
            n=draw(st.sampled_from([1, 1, 1, 2, 3])),
            tenant=draw(st.sampled_from("ab")),
            class_name=draw(st.sampled_from(["standard", "batch"])),
            priority=draw(st.integers(-2, 2)),
            common=draw(st.sampled_from([0, prompt // 2, prompt])),
        )
        wishes.append(wish)
    cancellations = []
    for _ in range(draw(st.integers(0, 3))):
        index = draw(st.integers(0, len(wishes) - 1))
        cancellations.append((index, wishes[index].at + draw(st.integers(0, 60))))
    return Workload(wishes, cancellations)


@st.composite
def hostilities(draw: st.DrawFn) -> Hostile:
    hooks = draw(st.lists(st.sampled_from(sorted(MISDEEDS)), unique=True, max_size=4))
    misdeeds = {
        hook: draw(st.lists(st.sampled_from(MISDEEDS[hook]), unique=True, min_size=1, max_size=3)) for hook in hooks
    }
    return Hostile(misdeeds, draw(st.integers(0, 1 << 32)), draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])))


def iteration_bound(machine: Machine, workload: Workload) -> int:
    """The most iterations that the anchor rule allows: the anchor computes something at least every five.

    A little more where an allocator refuses the anchor: that is noticed in one iteration and cured in the next.
    """
    chunk = min(machine.block_size, machine.token_limit)
    work = sum(wish.n * (wish.prompt // chunk + 2 + wish.output) for wish in workload.wishes)
    return workload.last_event + 6 * work + 20


def check_budgets(machine: Machine, records: list[IterationRecord]) -> None:
    """No iteration had more tokens or sequences than allowed, a lone whole prompt aside."""
    for record in records:
        tokens = sum(record.num_tokens.values())
        alone = len(record.num_tokens) == 1 and record.idle_rows == 0
        assert alone or tokens + record.idle_rows <= machine.token_limit, record
        assert len(record.num_tokens) <= machine.sequence_limit, record
        assert record.num_running <= machine.sequence_limit, record
        assert min(record.num_tokens.values(), default=1) >= 1, record


def check_outcomes(workload: Workload, expected: Simulation, actual: Simulation) -> None:
    """Every request ended once, with the tokens that it has in an engine without hostility."""
    assert actual.errors == {}
    assert actual.rejected == {}
    cancelled = {f"r{index}" for index, _ in workload.cancellations}
    for request in workload.requests:
        outcome = actual.outcomes.get(request.id)
        if request.id in cancelled and outcome is None:
            assert request.id not in actual.accepted  # cancelled before it was looked at
            continue
        assert outcome is not None, f"{request.id} never ended"
        for index in range(request.n):
            key = (request.id, index)
            tokens, right = actual.token_ids.get(key, []), expected.token_ids[key]
            if outcome.finish_reason == "cancelled":
                assert tokens == right[: len(tokens)]
            else:
                assert tokens == right
                assert actual.finish_reasons[key] == expected.finish_reasons[key]


def check_empty(machine: Machine, engine: Engine) -> None:
    """Nothing is left of anybody."""
    state = engine.state
    assert not engine.has_work
    assert (state.num_free_blocks, state.running, state.num_waiting) == (machine.num_blocks, [], 0)
    assert (state.num_waiting_tokens, state.requests, state.protected) == (0, {}, {})
