"""A trial: one policy, beside the defaults, through one workload in virtual time, watched for what it does wrong."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from core_engine.clock import VirtualClock
from core_engine.defaults import default_policies
from core_engine.engine import Engine
from core_engine.errors import IntegrityError
from core_engine.hookspecs import hookimpl
from core_engine.lab.simulate import Simulation
from core_engine.messages import IterationOutput
from core_engine.objectives import Objective
from core_engine.panel import PolicyFault
from core_engine.plan import IterationRecord
from core_engine.policy_set import PolicySet
from core_engine.request import Sequence
from core_engine.selection import NamedPolicy
from core_engine.testkit.engine import simulated_engine
from core_engine.testkit.subject import Subject
from core_engine.testkit.workloads import Flood, Wish, Workload

_PATIENCE = 4  # iterations without work done, after which the engine puts its oldest sequence first
_MOST_REFUSALS = 20  # of one request that comes back whenever it was told to
_OBJECTIVES = {
    "interactive": Objective(time_to_first_token_seconds=0.5, time_per_output_token_seconds=0.1),
    "standard": Objective(time_to_first_token_seconds=5.0),
}

Kind = Literal[
    "fault",
    "integrity",
    "standstill",
    "unfinished",
    "refusal",
    "gates",
    "leak",
    "starvation",
    "not_deterministic",
    "slow",
]


class Finding(msgspec.Struct, frozen=True):
    """What a policy did wrong."""

    kind: Kind
    message: str


class Witness:
    """A policy without opinions that keeps the records, and how long everybody waited, in iterations."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.longest_wait = 0
        self.num_boardings = 0
        self.arrivals: dict[str, int] = {}  # request id -> iteration
        self._preempted: dict[int, int] = {}  # sequence id -> iteration

    @hookimpl
    def on_iteration_end(self, record: IterationRecord) -> None:
        """Take in one record."""
        self.lines.append(msgspec.json.encode(record))
        if record.started:
            self.num_boardings += len(record.started)
            requests = {row.sequence_id: row.request_id for row in record.rows}
            for sequence_id in record.started:
                since = self._preempted.pop(sequence_id, None) or self.arrivals[requests[sequence_id]]
                self.longest_wait = max(self.longest_wait, record.iteration - since)
        for sequence_id in record.preempted:
            self._preempted[sequence_id] = record.iteration


@dataclass(slots=True)
class Trial:
    """What came of it. `rescues` counts how often a rule of the engine had to step in."""

    finding: Finding | None = None
    records: list[bytes] = field(default_factory=list)
    iterations: int = 0
    longest_wait_iterations: int = 0
    rescues: dict[str, int] = field(default_factory=dict)
    num_boardings: int = 0


def run_trial(
    subject: Subject,
    workload: Workload,
    seed: int = 0,
    watch: Callable[[int, Any], None] = lambda iteration, policy: None,
) -> Trial:
    """Run a fresh policy until the wishes are answered; `watch(iteration, policy)` is called after each iteration."""
    with _silence():
        return _Run(subject.build(seed), workload, watch).through()


class _Run:
    def __init__(self, policy: NamedPolicy, workload: Workload, watch: Callable[[int, Any], None]) -> None:
        self._policy = policy
        self._swaps = list(workload.swaps)
        self._watch = watch
        machine = workload.machine
        self._workload = workload
        self._is_in_force = not workload.swaps
        self._defaults = default_policies(0)
        self._witness = Witness()
        self._engine: Engine
        self._clock: VirtualClock
        self._engine, self._clock = simulated_engine(
            [*([] if workload.swaps else [policy]), NamedPolicy("testkit", self._witness)],
            num_blocks=machine.num_blocks,
            block_size=machine.block_size,
            token_limit=machine.token_limit,
            sequence_limit=machine.sequence_limit,
            max_wait_iterations=machine.max_wait_iterations,
            objectives=_OBJECTIVES,
            strict=True,
            check_integrity=workload.flood is None,  # which looks at every block in every iteration
        )
        self._requests = {f"r{i}": wish.request(f"r{i}", i) for i, wish in enumerate(workload.wishes)}
        self._gone: set[str] = set()  # cancelled
        self._refusals: dict[str, int] = {}
        self._comebacks: list[tuple[float, str]] = []  # heap of (seconds, request id)
        clients = range(workload.flood.clients if workload.flood is not None else 0)
        self._asked = dict.fromkeys(clients, 0)  # client of the flood -> iteration of its last request, 0: answered
        self._latest: dict[str, int] = {}  # last request of each client -> client
        self._num_flooded = 0
        self._standstill = 0
        self._simulation = Simulation()
        self._iteration = 0

    def through(self) -> Trial:
        try:
            finding = self._run() or self._at_end()
        except PolicyFault as fault:
            finding = Finding("fault", str(fault))
        except IntegrityError as error:
            finding = Finding("integrity", str(error))
        rescues = dict(+self._engine.state.rescues)
        witness = self._witness
        return Trial(finding, witness.lines, self._iteration, witness.longest_wait, rescues, witness.num_boardings)

    def _run(self) -> Finding | None:
        while not self._is_over():
            if self._iteration >= self._workload.most_iterations:
                return self._unfinished()
            self._iteration += 1
            self._swap()
            self._hand_in()
            finding = self._judge(self._engine.step())
            self._watch(self._iteration, self._policy.policy)
            if finding is not None:
                return finding
        return None

    def _is_over(self) -> bool:
        if self._workload.iterations is not None:
            return self._iteration >= self._workload.iterations
        if self._iteration < self._workload.last_event:
            return False
        if self._workload.flood is not None:
            return all(name in self._simulation.outcomes or name in self._gone for name in self._requests)
        return not self._engine.has_work and not self._comebacks

    def _swap(self) -> None:
        while self._swaps and self._swaps[0] <= self._iteration:
            self._swaps.pop(0)
            self._is_in_force = not self._is_in_force
            chosen = [self._policy] if self._is_in_force else []
            policies = PolicySet([*chosen, NamedPolicy("testkit", self._witness)], self._defaults)
            self._engine.adopt_policies(policies)

    def _hand_in(self) -> None:
        now = self._iteration
        for (name, request), wish in zip(self._requests.items(), self._workload.wishes, strict=True):
            if wish.at == now:
                self._submit(request.id)
            if wish.cancel_at == now:
                self._gone.add(name)
                self._engine.cancel(name)
        if self._workload.flood is not None:
            self._flood(self._workload.flood)
        if self._comebacks and not self._engine.has_work and now > self._workload.last_event:
            self._clock.advance(max(0.0, self._comebacks[0][0] - self._clock.now()))
        while self._comebacks and self._comebacks[0][0] <= self._clock.now():
            _, name = heapq.heappop(self._comebacks)
            if name not in self._gone:
                self._submit(name)

    def _flood(self, flood: Flood) -> None:
        for client, asked in self._asked.items():
            if asked and self._iteration - asked < flood.patience_iterations:
                continue
            self._asked[client] = self._iteration
            self._num_flooded += 1
            request = flood.wish.request(f"flood-{self._num_flooded}", self._num_flooded)
            self._latest[request.id] = client
            self._witness.arrivals[request.id] = self._iteration
            self._engine.submit(request)

    def _answered(self, request_id: str) -> None:
        client = self._latest.pop(request_id, None)
        if client is not None:
            self._asked[client] = 0

    def _submit(self, name: str) -> None:
        self._witness.arrivals[name] = self._iteration
        self._engine.submit(self._requests[name])

    def _judge(self, output: IterationOutput) -> Finding | None:
        self._simulation.add(output)
        for rejected in output.rejected:
            if rejected.request_id not in self._requests:
                self._answered(rejected.request_id)
                continue
            times = self._refusals[rejected.request_id] = self._refusals.get(rejected.request_id, 0) + 1
            if times >= _MOST_REFUSALS:
                return Finding(
                    "refusal",
                    f"{rejected.request_id} was refused {times} times ({rejected.reason}), though it came back as late "
                    "as it was told to",
                )
            due = self._clock.now() + (rejected.retry_after_seconds or 0.0)
            heapq.heappush(self._comebacks, (due, rejected.request_id))
        for outcome in output.finished:
            self._answered(outcome.request_id)
        for piece in output.outputs:
            if piece.error is not None:
                return Finding("integrity", f"{piece.request_id} ended with an error: {piece.error}")
        return self._standing(output)

    def _standing(self, output: IterationOutput) -> Finding | None:
        stats = output.stats
        assert stats is not None
        stands = stats.prefill_tokens + stats.decode_tokens == 0 and not stats.memory_shortages
        busy = stats.sequences_running + stats.sequences_waiting > 0
        self._standstill = self._standstill + 1 if stands and busy else 0
        if self._standstill < _PATIENCE:
            return None
        return Finding(
            "standstill",
            f"iterations {self._iteration - _PATIENCE + 1} to {self._iteration} computed nothing: "
            f"{stats.sequences_running} running, {stats.sequences_waiting} waiting, {stats.blocks_free} blocks free; "
            "without the engine's own rule nothing would end",
        )

    def _unfinished(self) -> Finding:
        missing = [n for n in self._requests if n not in self._simulation.outcomes and n not in self._gone]
        return Finding("unfinished", f"{', '.join(missing)} is not answered after {self._iteration} iterations")

    def _at_end(self) -> Finding | None:
        if self._workload.iterations is not None:
            return None
        simulation = self._simulation
        for name, request in self._requests.items():
            if name in self._gone:
                continue
            wanted = request.sampling.max_tokens
            for sample in range(request.n):
                if len(simulation.token_ids.get((name, sample), [])) != wanted:
                    return Finding("integrity", f"{name}, sample {sample}, did not get its {wanted} tokens")
        if self._workload.flood is None:
            self._check_allocator()
        return None

    def _check_allocator(self) -> None:
        """With everything free again, an allocator that lost no block can grant them all; else the pool faults it."""
        pool = self._engine.state.pool
        request = Wish().request("probe", 0)
        probe = Sequence(-1, request, 0, max_tokens=1, seed=0, arrival_seconds=0, arrival_iteration=0)
        pool.grow(probe, pool.num_blocks)
        pool.release(probe)


@contextmanager
def _silence() -> Iterator[None]:
    """The log would name every fault again."""
    logger = logging.getLogger("jitney")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
