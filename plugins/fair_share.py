"""Fairness between tenants: whoever has had the least is served next."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Annotated, Literal

import msgspec

from core_engine.cost import Load
from core_engine.hookspecs import hookimpl
from core_engine.plan import IterationRecord
from core_engine.view import EngineView, SequenceView

Weight = Annotated[float, msgspec.Meta(gt=0)]
_MOST_IDLE = 1024  # tenants without work that are remembered


class FairShareOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`charge`: the unit of service; the weights of tokens, more than 0, count with `charge=tokens` only.

    `credit_seconds`, 0 to 60, counts with `charge=seconds` only.
    """

    charge: Literal["seconds", "tokens"] = "seconds"
    prompt_weight: Weight = 1.0
    output_weight: Weight = 2.0
    credit_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.5


class FairShare:
    """Gives each tenant its share of service: the one with the least so far goes first.

    A virtual counter per tenant grows with what is computed for it, divided by its weight (the configured one, else
    that of its requests): predicted seconds (`charge=seconds`), or tokens (`charge=tokens`, `prompt_weight` 1 and
    `output_weight` 2 each). Cached tokens are free, recomputed ones are not charged. A tenant that begins to wait is
    lifted to the least counter of those who wait already, so that idling saves nothing up but `credit_seconds` (0.5;
    none with `charge=tokens`): so a few requests in a row of one that asks for little all go first. Who runs goes on;
    of a tenant's requests the first goes first. Source: virtual token counters, VTC (Sheng et al., OSDI '24); the
    credit is our own. Guarantees with `charge=tokens` that the service of two tenants, per weight, differs over any
    time in which both always have requests waiting by at most 2 * max(`prompt_weight` * longest prompt,
    `output_weight` * tokens of the KV pool), in weighted tokens; without preemption and gates (`paged:headroom=0`, or
    `reserved`).
    """

    Options = FairShareOptions
    hookspec_range = (1, 1)

    def __init__(self, options: FairShareOptions, seed: int) -> None:
        self.options = options
        self._credit = options.credit_seconds if options.charge == "seconds" else 0.0
        self.counters: dict[str, float] = {}  # service by tenant, per weight
        self._weights: dict[str, float] = {}
        self._waiting: set[str] = set()  # tenants with a queue at the last look
        self._floor = 0.0  # the least, before its credit, that a tenant which begins to wait counts

    @hookimpl
    def rank_sequences(self, view: EngineView) -> tuple[list[int], set[int]]:
        """Who runs, by counter; then the waiting one of the least counter, again and again."""
        queues = self._queues(view)
        prompt_cost = self._prompt_cost(view)
        levels = self._levels(view, queues, prompt_cost)
        running = sorted(view.running, key=lambda sequence: (levels[sequence.tenant], sequence.id))
        ids = [sequence.id for sequence in running]
        # No more can start than there are seats; twice as many, lest a few that are held hide the others.
        most = len(ids) + 2 * (view.sequence_limit - len(ids))
        seats = Counter(sequence.tenant for sequence in running)  # of equals, who has fewer of them goes first
        heap = [(levels[tenant], seats[tenant], queue[0].id, tenant, 0) for tenant, queue in queues.items()]
        heapq.heapify(heap)
        while heap and len(ids) < most:
            level, _, sequence_id, tenant, place = heap[0]
            seats[tenant] += 1
            ids.append(sequence_id)
            queue = queues[tenant]
            level += _uncharged(queue[place]) * prompt_cost / self._weights[tenant]
            if place + 1 < len(queue):
                heapq.heapreplace(heap, (level, seats[tenant], queue[place + 1].id, tenant, place + 1))
            else:
                heapq.heappop(heap)
        return ids, set()

    @hookimpl
    def on_iteration_end(self, record: IterationRecord, view: EngineView) -> None:
        """Charge every tenant for what was computed for the first time."""
        charges: dict[str, float] = {}
        if self.options.charge == "tokens":
            for row in record.rows:
                weight = self.options.output_weight if row.is_decode else self.options.prompt_weight
                charges[row.tenant] = charges.get(row.tenant, 0.0) + weight * row.num_new_tokens
        else:
            charges = self._seconds(record, view)
        for tenant, charge in charges.items():
            self.counters[tenant] = self.counters.get(tenant, 0.0) + charge / self._weights.get(tenant, 1.0)

    def _seconds(self, record: IterationRecord, view: EngineView) -> dict[str, float]:
        """The iteration's predicted seconds, split by computation."""
        new: dict[str, Load] = {}
        for row in record.rows:
            known = row.num_computed_tokens + row.num_tokens - row.num_new_tokens
            new.setdefault(row.tenant, Load()).add(known, row.num_new_tokens)
        cost = view.cost_model
        total = Load.of((row.num_computed_tokens, row.num_tokens) for row in record.rows)
        rate = cost.estimate(total) / cost.flops(total) if total.rows else 0.0
        return {tenant: rate * cost.flops(load) for tenant, load in new.items()}

    def _prompt_cost(self, view: EngineView) -> float:
        """Of one prompt token."""
        if self.options.charge == "tokens":
            return self.options.prompt_weight
        return view.cost_model.estimate(Load.of([(0, view.token_limit)])) / view.token_limit

    def _queues(self, view: EngineView) -> dict[str, list[SequenceView]]:
        """Waiting sequences by tenant, in arrival order."""
        queues: dict[str, list[SequenceView]] = {}
        for (_, tenant), queue in view.waiting.items():
            queues.setdefault(tenant, []).extend(queue.window())
        for sequences in queues.values():
            sequences.sort(key=lambda sequence: sequence.id)
        return queues

    def _levels(self, view: EngineView, queues: dict[str, list[SequenceView]], prompt_cost: float) -> dict[str, float]:
        """Counters of those with work, the rest of running prompts charged already; lifts whoever begins to wait."""
        heads = [queue[0] for queue in queues.values()]
        configured = view.tenant_weights
        for sequence in (*view.running, *heads):
            self._weights[sequence.tenant] = configured.get(sequence.tenant, sequence.weight)
        running = {sequence.tenant for sequence in view.running}
        levels = {tenant: self.counters.get(tenant, 0.0) for tenant in running | queues.keys()}
        for sequence in view.running:
            levels[sequence.tenant] += _uncharged(sequence) * prompt_cost / self._weights[sequence.tenant]
        # Who was preempted has not been idle.
        begins = [t for t, queue in queues.items() if t not in self._waiting and not queue[0].num_preemptions]
        if begins:
            stay = queues.keys() & self._waiting or running
            least = min((levels[tenant] for tenant in stay), default=max(self.counters.values(), default=0.0))
            self._floor = max(self._floor, least)
            for tenant in begins:
                lift = max(0.0, self._lifted_to(tenant) - levels[tenant])
                self.counters[tenant] = self.counters.get(tenant, 0.0) + lift
                levels[tenant] += lift
            self._forget(levels)
        self._waiting = set(queues)
        return levels

    def _forget(self, levels: dict[str, float]) -> None:
        """Drop tenants without work that would be lifted anyway and, beyond a bound, those that had the least."""
        idle = sorted((self.counters.get(tenant, 0.0), tenant) for tenant in self._weights if tenant not in levels)
        for place, (counter, tenant) in enumerate(idle):
            if counter > self._lifted_to(tenant) and place >= len(idle) - _MOST_IDLE:
                break
            del self._weights[tenant]
            self.counters.pop(tenant, None)

    def _lifted_to(self, tenant: str) -> float:
        """What it counts at least when it begins to wait."""
        return self._floor - self._credit / self._weights[tenant]


def _uncharged(sequence: SequenceView) -> int:
    """Prompt tokens that have not been computed yet."""
    return max(0, sequence.num_prompt_tokens - sequence.max_computed_tokens)
