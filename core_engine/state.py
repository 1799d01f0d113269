"""EngineState: everything the engine knows between two iterations; policies see it as EngineView."""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Mapping

from core_engine.clock import Clock
from core_engine.config import EngineConfig
from core_engine.cost import CostModel, Load
from core_engine.errors import IntegrityError
from core_engine.executor import ModelSpec
from core_engine.kv import KVPool
from core_engine.messages import Setback
from core_engine.objectives import Objective
from core_engine.predict import OutputPredictor
from core_engine.request import Request, Sequence, Status
from core_engine.waiting import WaitingQueue, WaitingQueues

_BOARDINGS = 128  # how many of the last boardings the drain rate is measured over
_ANCHOR_PATIENCE = 4  # iterations without progress after which the anchor is put first


class RequestState:
    """A request in the engine and what its sequences have come to."""

    __slots__ = ("num_unfinished", "request", "sequences", "setbacks")

    def __init__(self, request: Request, sequences: list[Sequence]) -> None:
        self.request = request
        self.sequences = sequences
        self.num_unfinished = len(sequences)
        self.setbacks: list[Setback] = []


class EngineState:
    """Sequences, blocks and measurements, and the few moves that keep them consistent.

    A sequence is in `running` (by arrival) or in `waiting_queues`, never in both; WAITING owns no blocks.
    """

    def __init__(self, config: EngineConfig, spec: ModelSpec, clock: Clock, pool: KVPool) -> None:
        self.config = config
        self.spec = spec
        self.clock = clock
        self.pool = pool
        self.iteration = 0
        self.running: list[Sequence] = []
        self.waiting_queues = WaitingQueues(config.waiting_window)
        self.requests: dict[str, RequestState] = {}
        self.cost_model = CostModel(spec.row_flops, spec.attention_flops)
        self.predictor = OutputPredictor()
        self.protected: dict[int, Sequence] = {}  # boarded because overdue; no victims until their next token
        self.preempted: dict[int, str] = {}  # of this iteration: sequence id -> cause
        self.shortages: dict[str, int] = {}  # of this iteration: cause -> how many
        self.num_preemptions = 0
        self.num_preempted_this_iteration = 0
        self.num_memory_shortages = 0
        self.num_faults = 0
        self.rescues: Counter[str] = Counter()  # since start, by the rule of the engine that had to step in
        self.last_load = Load()  # of the last execution
        self.last_decode_load = Load()
        self._decodes: list[Sequence] | None = None
        self._decode_load: Load | None = None
        self.anchor_stall = 0  # iterations in a row in which the anchor computed nothing
        self.refused: set[int] = set()  # ids for which the allocator had no block in the last iteration
        self._anchor: tuple[int, int] | None = None  # id, computed tokens, at the end of the last iteration
        self._running_by_id: dict[int, Sequence] = {}
        self._boardings: deque[tuple[float, int]] = deque()  # (seconds, prompt tokens), of the last ones
        self._boarded_tokens = 0  # of all of them

    # What policies see beside the plain attributes (EngineView).

    @property
    def now(self) -> float:
        return self.clock.now()

    @property
    def block_size(self) -> int:
        return self.pool.block_size

    @property
    def num_blocks(self) -> int:
        return self.pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free_blocks

    @property
    def num_cached_idle_blocks(self) -> int:
        return self.pool.num_idle_blocks

    @property
    def num_reserved_blocks(self) -> int:
        blocks_for = self.pool.blocks_for
        return sum(len(s.block_table) - blocks_for(s.num_computed_tokens) for s in self.running)

    @property
    def token_limit(self) -> int:
        return self.config.token_limit

    @property
    def sequence_limit(self) -> int:
        return self.config.sequence_limit

    @property
    def waiting(self) -> dict[tuple[str, str], WaitingQueue]:
        return self.waiting_queues.queues

    @property
    def num_waiting(self) -> int:
        return len(self.waiting_queues)

    @property
    def num_waiting_tokens(self) -> int:
        return self.waiting_queues.num_tokens

    @property
    def requests_per_second(self) -> float:
        return self._rate(len(self._boardings))

    @property
    def tokens_per_second(self) -> float:
        return self._rate(self._boarded_tokens)

    @property
    def mean_output_tokens(self) -> float:
        return self.predictor.mean_output_tokens

    @property
    def tenant_weights(self) -> dict[str, float]:
        return self.config.tenant_weights

    @property
    def class_targets(self) -> dict[str, Objective]:
        return self.config.objectives

    @property
    def decodes(self) -> list[Sequence]:
        """Running sequences with one token to catch up with, by arrival; the same list until something changes."""
        if self._decodes is None:
            self._decodes = [s for s in self.running if s.num_tokens - s.num_computed_tokens == 1]
        return self._decodes

    @property
    def decode_load(self) -> Load:
        if self._decode_load is None:
            self._decode_load = Load.of_decodes([s.num_computed_tokens for s in self.decodes])
        return self._decode_load

    def running_changed(self) -> None:
        """Forget what was summed up over the running sequences: some were computed, started or stopped."""
        self._decodes = self._decode_load = None

    def get(self, sequence_id: int) -> Sequence | None:
        """The running or waiting sequence of that id."""
        return self._running_by_id.get(sequence_id) or self.waiting_queues.get(sequence_id)

    # What the engine moves.

    @property
    def running_ids(self) -> Mapping[int, Sequence]:
        """The running sequences by id."""
        return self._running_by_id

    def is_running(self, sequence_id: int) -> bool:
        """Whether a sequence of that id runs."""
        return sequence_id in self._running_by_id

    def anchor(self) -> Sequence | None:
        """The oldest running sequence by arrival; when nothing runs, the oldest waiting one."""
        if self.running:
            return self.running[0]
        return min((next(iter(queue)) for queue in self.waiting.values()), key=lambda s: s.id, default=None)

    @property
    def anchor_is_stalled(self) -> bool:
        """Whether the anchor has gone without progress for so long that it is put first."""
        return self.anchor_stall >= _ANCHOR_PATIENCE

    def watch_anchor(self, *, any_computed: bool) -> None:
        """Notice, at the end of an iteration, whether the anchor computed anything.

        One that waits lacks nothing while others that go before it are computed, and end in the iteration they start.
        """
        anchor = self.anchor()
        current = (anchor.id, anchor.num_computed_tokens) if anchor else None
        if current is None or current != self._anchor:
            self.anchor_stall = 0
        elif self.running or not any_computed:
            self.anchor_stall += 1
        self._anchor = current
        if self.anchor_stall == _ANCHOR_PATIENCE:
            self.rescues["anchor"] += 1

    def start(self, sequence: Sequence, num_matched_tokens: int) -> None:
        """WAITING to RUNNING; its first blocks have been granted, the first tokens found computed."""
        self.waiting_queues.remove(sequence)
        if sequence.id in self.protected:
            self.rescues["overdue"] += 1
        sequence.status = Status.RUNNING
        sequence.num_computed_tokens = sequence.num_matched_tokens = num_matched_tokens
        sequence.start_iteration = self.iteration
        if sequence.start_seconds is None:
            sequence.num_cached_tokens = num_matched_tokens
            sequence.start_seconds = self.clock.now()
            self._boardings.append((sequence.start_seconds, sequence.num_prompt_tokens))
            self._boarded_tokens += sequence.num_prompt_tokens
            if len(self._boardings) > _BOARDINGS:
                self._boarded_tokens -= self._boardings.popleft()[1]
        bisect.insort(self.running, sequence, key=_id)
        self.running_changed()
        self._running_by_id[sequence.id] = sequence

    def preempt(self, sequence: Sequence, cause: str) -> int:
        """RUNNING to WAITING, to be recomputed; returns how many blocks became free."""
        self._stop_running(sequence)
        freed = self.pool.release(sequence)
        sequence.num_computed_tokens = sequence.num_matched_tokens = 0
        sequence.num_preemptions += 1
        # Who had no token yet has waited since its arrival, however often it boarded in between.
        served = sequence.first_token_seconds is not None
        self.waiting_queues.add(sequence, self.iteration if served else sequence.arrival_iteration)
        self.preempted[sequence.id] = cause
        self.num_preemptions += 1
        return freed

    def remove(self, sequence: Sequence) -> None:
        """To FINISHED, from wherever it is; its blocks are free at once."""
        if sequence.status is Status.RUNNING:
            self._stop_running(sequence)
            self.pool.release(sequence)
        elif sequence.status is Status.WAITING:
            self.waiting_queues.remove(sequence)
        self.protected.pop(sequence.id, None)
        sequence.status = Status.FINISHED

    def check_integrity(self) -> None:
        """Raise IntegrityError if any invariant of our own accounting is broken."""
        self.pool.check_integrity(self.running)
        for sequence in self.waiting_queues:
            if sequence.block_table or sequence.status is not Status.WAITING or self.is_running(sequence.id):
                raise IntegrityError(f"{sequence} waits, but owns blocks or runs")
        for sequence in self.running:
            if sequence.status is not Status.RUNNING or sequence in self.waiting_queues:
                raise IntegrityError(f"{sequence} runs, but its status or a queue says otherwise")
            if sequence.num_computed_tokens > len(sequence.block_table) * self.block_size:
                raise IntegrityError(f"{sequence} has computed more than its blocks hold")
        if self._decodes is not None and self._decodes != [s for s in self.running if s.num_pending_tokens == 1]:
            raise IntegrityError("the list of running decodes is out of date")
        unfinished = sum(state.num_unfinished for state in self.requests.values())
        if unfinished != len(self.running) + len(self.waiting_queues):
            raise IntegrityError(
                f"{unfinished} unfinished sequences, but {len(self.running)} running and {self.num_waiting} waiting"
            )

    def _stop_running(self, sequence: Sequence) -> None:
        self.running_changed()
        del self._running_by_id[sequence.id]
        del self.running[bisect.bisect_left(self.running, sequence.id, key=_id)]

    def _rate(self, amount: int) -> float:
        if len(self._boardings) < 2:
            return 0.0
        return amount / max(1e-9, self.clock.now() - self._boardings[0][0])


def _id(sequence: Sequence) -> int:
    return sequence.id
