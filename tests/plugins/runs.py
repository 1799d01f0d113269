"""Policies at work in a small strict engine in virtual time, and what they did."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from core_engine.hookspecs import hookimpl
from core_engine.lab.simulate import Simulation
from core_engine.plan import IterationRecord
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from core_engine.view import EngineView
from tests.simulation.support import Machine, Workload, machines, workloads

# For properties that run an engine: there are many of them, so each tries less hard than the profile says.
modestly = settings(max_examples=max(5, settings().max_examples // 3))

cases = machines().flatmap(lambda machine: st.tuples(st.just(machine), workloads(machine)))


def make_request(name: str, prompt: int = 10, output: int = 5, *, like: str = "", **fields: Any) -> Request:
    """A greedy request that generates exactly `output` tokens.

    Prompts begin differently, but for one that is `like` that of a request of another name.
    """
    seed = zlib.crc32((like or name).encode())
    return Request(
        id=name,
        model="simulated",
        prompt_token_ids=[(seed // 990 ** (i % 3) + i) % 990 for i in range(prompt)],
        sampling=SamplingParams(temperature=0, max_tokens=output, ignore_eos=True),
        **fields,
    )


class Witness:
    """A policy without opinions that keeps records, and asks `look(view)` where a gate is asked."""

    def __init__(self, look: Callable[[EngineView], Any]) -> None:
        self.look = look
        self.records: list[IterationRecord] = []
        self.seen: list[Any] = []

    @hookimpl
    def limit_prefill(self, view: EngineView) -> None:
        self.seen.append(self.look(view))

    @hookimpl
    def on_iteration_end(self, record: IterationRecord) -> None:
        self.records.append(record)


class Run:
    """A strict engine with these policies, the last one a Witness."""

    def __init__(
        self, *policies: str | object, look: Callable[[EngineView], Any] = lambda view: None, **options: Any
    ) -> None:
        self.witness = Witness(look)
        self.engine, self.clock = simulated_engine([*policies, self.witness], **{"strict": True, **options})
        self.simulation = Simulation()
        self.names: dict[int, str] = {}  # sequence id -> request id

    @property
    def records(self) -> list[IterationRecord]:
        return self.witness.records

    def submit(self, *requests: Request) -> Run:
        for request in requests:
            self.engine.submit(request)
        return self

    def step(self, iterations: int = 1) -> IterationRecord:
        """Run so many iterations; the record of the last."""
        for _ in range(iterations):
            self.simulation.add(self.engine.step())
            self.names.update((row.sequence_id, row.request_id) for row in self.records[-1].rows)
        return self.records[-1]

    def finish(self, *requests: Request, at_most: int = 20_000) -> Run:
        """Submit these and run until everything is done."""
        self.submit(*requests)
        while self.engine.has_work:
            assert len(self.records) < at_most, "it does not come to an end"
            self.step()
        return self

    def under_flood(
        self, flood: Iterator[Request], until: Callable[[], bool], *, backlog: int = 8, at_most: int = 20_000
    ) -> Run:
        """Keep at least `backlog` sequences waiting until something is true."""
        while not until():
            assert len(self.records) < at_most, "it does not come to that"
            for _ in range(backlog - self.engine.state.num_waiting):
                self.engine.submit(next(flood))
            self.step()
        return self

    def planned(self, record: IterationRecord) -> dict[str, int]:
        """Tokens by request id."""
        return {row.request_id: row.num_tokens for row in record.rows}

    def started(self) -> list[str]:
        """Request ids, in the order of their first starts."""
        return list(dict.fromkeys(self.names[sequence_id] for record in self.records for sequence_id in record.started))

    def all_of(self, workload: Workload) -> Run:
        """Run a drawn workload to its end."""
        self.simulation = workload.run(self.engine, 50_000)
        assert not self.engine.has_work, "it does not come to an end"
        return self

    def has_ended(self, name: str) -> bool:
        return name in self.simulation.ended


def run_on(machine: Machine, *policies: str | object, **options: Any) -> Run:
    """A Run on a drawn machine whose bound on waiting is out of reach, so that policies are all there is."""
    return Run(*policies, **{**asdict(machine), "max_wait_iterations": 1 << 40, **options})


def flood(prefix: str, shapes: Iterable[tuple[int, int]], **fields: Any) -> Iterator[Request]:
    """Endless requests `prefix-0`, `prefix-1`, ... of these (prompt, output) lengths, again and again."""
    lengths = list(shapes)
    index = 0
    while True:
        prompt, output = lengths[index % len(lengths)]
        yield make_request(f"{prefix}-{index}", prompt, output, **fields)
        index += 1


def alternately(*sources: Iterator[Request]) -> Iterator[Request]:
    """One of each, again and again."""
    while True:
        for source in sources:
            yield next(source)
