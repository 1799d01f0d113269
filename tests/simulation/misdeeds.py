"""Misdeeds of policies, by hook: some are faults, which the engine must notice, others legal and merely harmful."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from core_engine.budget import Budget
from core_engine.plan import Admit, IterationPlan, PrefillLimit, Reject
from core_engine.request import Request
from core_engine.view import EngineView, SequenceView

NONSENSE: list[Any] = [
    "words", b"bytes", 3.5, float("nan"), float("inf"), True, object(), {"a": 1}, {1: "a"}, [None], [[1]], (1,), -1,
    1 << 70, {-1: 5}, lambda: 1,
]  # fmt: skip


class Boom(Exception):
    """What a hostile policy raises."""


def raises(*_: Any) -> Any:
    raise Boom("boom")


def nonsense(draw: random.Random, *_: Any) -> Any:
    return draw.choice(NONSENSE)


def _everyone(view: EngineView) -> list[int]:
    return [s.id for s in view.running] + [s.id for queue in view.waiting.values() for s in queue.window()]


def _some(draw: random.Random, ids: list[int]) -> list[int]:
    return draw.sample(ids, draw.randint(0, len(ids)))


def _strangers(draw: random.Random, *_: Any) -> list[int]:
    return [draw.randint(-5, 10_000) for _ in range(draw.randint(0, 5))]


# rank_sequences


def permute(draw: random.Random, view: EngineView) -> Any:
    return _some(draw, _everyone(view)), set()


def newest_first(draw: random.Random, view: EngineView) -> Any:
    return sorted(_everyone(view), reverse=True), set()


def rank_strangers(draw: random.Random, view: EngineView) -> Any:
    return _strangers(draw) * 2 + _everyone(view) + _strangers(draw), set(_strangers(draw))


def all_must_run(draw: random.Random, view: EngineView) -> Any:
    return _some(draw, _everyone(view)), set(_everyone(view))


def some_must_run(draw: random.Random, view: EngineView) -> Any:
    return [], set(_some(draw, _everyone(view)))


def newest_must_run(draw: random.Random, view: EngineView) -> Any:
    ids = sorted(_everyone(view), reverse=True)
    return ids, set(ids[:4])


RANK = [raises, nonsense, permute, newest_first, rank_strangers, all_must_run, some_must_run, newest_must_run]


# limit_prefill


def gate_of_zero(draw: random.Random, view: EngineView) -> Any:
    return PrefillLimit(**{draw.choice(["prompt_tokens", "new_sequences", "seconds"]): 0}, reason="never")


def keep_everything_free(draw: random.Random, view: EngineView) -> Any:
    return PrefillLimit(keep_free_blocks=draw.choice([view.num_blocks, 1 << 40]))


def hold_everybody(draw: random.Random, view: EngineView) -> Any:
    return PrefillLimit(held=dict.fromkeys(_everyone(view), "because"))


def wrong_limit(draw: random.Random, view: EngineView) -> Any:
    field = draw.choice(["prompt_tokens", "new_sequences", "keep_free_blocks", "seconds", "held", "reason"])
    return PrefillLimit(**{field: draw.choice(NONSENSE)})


LIMIT = [raises, nonsense, gate_of_zero, keep_everything_free, hold_everybody, wrong_limit]


# choose_victims


def everybody_is_a_victim(draw: random.Random, order: Sequence[int], view: EngineView) -> Any:
    return list(order)


def random_victims(draw: random.Random, order: Sequence[int], view: EngineView) -> Any:
    return _some(draw, _everyone(view)) + _strangers(draw)


def victims_twice(draw: random.Random, order: Sequence[int], view: EngineView) -> Any:
    return list(order) * 3


VICTIMS = [raises, nonsense, _strangers, everybody_is_a_victim, random_victims, victims_twice]


# reserve_blocks


def reserve_all(draw: random.Random, sequence: SequenceView, view: EngineView) -> Any:
    return draw.choice([view.num_blocks, 1 << 40])


def reserve_less_than_nothing(draw: random.Random, sequence: SequenceView, view: EngineView) -> Any:
    return -draw.randint(1, 1 << 40)


def reserve_at_random(draw: random.Random, sequence: SequenceView, view: EngineView) -> Any:
    return draw.randint(0, 2 * (sequence.num_tokens // view.block_size + 2))


RESERVE = [raises, nonsense, reserve_all, reserve_less_than_nothing, reserve_at_random]


# plan_iteration


class Planning:
    """What a planner is asked."""

    def __init__(
        self, running: Sequence[SequenceView], waiting: Sequence[SequenceView], budget: Budget, view: EngineView
    ) -> None:
        self.running = running
        self.waiting = waiting
        self.budget = budget
        self.view = view

    @property
    def everyone(self) -> list[SequenceView]:
        return [*self.running, *self.waiting]


def empty_plan(draw: random.Random, asked: Planning) -> Any:
    return IterationPlan({})


def taken_at_random(draw: random.Random, asked: Planning) -> Any:
    everyone = asked.everyone
    for sequence in draw.sample(everyone, len(everyone)):
        asked.budget.take(sequence, draw.randint(0, 40), whole=draw.random() < 0.3)
    return asked.budget.plan(deliver=draw.random() < 0.7, idle_rows=draw.randint(0, 3))


def newest_only(draw: random.Random, asked: Planning) -> Any:
    for sequence in sorted(asked.everyone, key=lambda s: -s.id)[:3]:
        asked.budget.take(sequence, sequence.num_pending_tokens)
    return asked.budget.plan()


def only_newcomers(draw: random.Random, asked: Planning) -> Any:
    for sequence in asked.waiting:
        asked.budget.take(sequence, 1)
    return asked.budget.plan()


def never_deliver(draw: random.Random, asked: Planning) -> Any:
    for sequence in asked.everyone:
        asked.budget.take(sequence, sequence.num_pending_tokens)
    return asked.budget.plan(deliver=False)


def number_of_everything(draw: random.Random, asked: Planning) -> Any:
    numbers = [0, -1, 1, 7, 1 << 40, 1.5, float("nan"), True, "1", None]
    return IterationPlan({s.id: draw.choice(numbers) for s in asked.everyone})


def everything_pending(draw: random.Random, asked: Planning) -> Any:
    return IterationPlan({s.id: s.num_pending_tokens for s in asked.everyone})


def plan_strangers(draw: random.Random, asked: Planning) -> Any:
    return IterationPlan({draw.choice([-1, 5, 10_000, "a", None, 2.0]): 1})


def plan_the_finished(draw: random.Random, asked: Planning) -> Any:
    newest = max((s.id for s in asked.everyone), default=0)
    return IterationPlan(dict.fromkeys(range(newest), 1))


def huge_idle_rows(draw: random.Random, asked: Planning) -> Any:
    return IterationPlan({}, True, draw.choice([1 << 40, asked.view.token_limit + 1, asked.view.token_limit, -3, 2.5]))


def wrong_plan(draw: random.Random, asked: Planning) -> Any:
    return IterationPlan(draw.choice(NONSENSE), draw.choice(NONSENSE), draw.choice(NONSENSE))


def takenonsense(draw: random.Random, asked: Planning) -> Any:
    for sequence in asked.everyone:
        asked.budget.take(sequence, draw.choice([float("nan"), 1.5, float("inf"), True, -4]))
    return asked.budget.plan()


def doctored_budget(draw: random.Random, asked: Planning) -> Any:
    budget = asked.budget
    for field in ("tokens_left", "blocks_left", "sequences_left", "starts_left"):
        if draw.random() < 0.7:
            setattr(budget, field, draw.choice([1 << 40, float("nan"), -5]))
    for sequence in asked.everyone:
        budget.take(sequence, sequence.num_pending_tokens)
    return budget.plan()


def takes_and_raises(draw: random.Random, asked: Planning) -> Any:
    never_deliver(draw, asked)
    raise Boom("after taking")


PLAN = [
    raises, nonsense, empty_plan, taken_at_random, newest_only, only_newcomers, never_deliver, number_of_everything,
    everything_pending, plan_strangers, plan_the_finished, huge_idle_rows, wrong_plan, takenonsense, doctored_budget,
    takes_and_raises,
]  # fmt: skip


# admit_request, predict_output_tokens: nonsense, but no honest rejection, so that every request enters


def wrong_admission(draw: random.Random, request: Request) -> Any:
    return draw.choice(
        [
            Reject("", 1.0),
            Reject("busy", 0.0),
            Reject("busy", -1.0),
            Reject("busy", float("nan")),
            Reject("busy", "soon"),  # type: ignore[arg-type]
            Reject(None, 1.0),  # type: ignore[arg-type]
            Admit({"a": 1}),  # type: ignore[dict-item]
            Admit([("a", "b")]),  # type: ignore[arg-type]
        ]
    )


def predict_at_random(draw: random.Random, request: Request) -> Any:
    return draw.choice([0, -7, 1, 1 << 50])


ADMIT = [raises, nonsense, wrong_admission]
PREDICT = [raises, nonsense, predict_at_random]

# create_block_allocator: names of what HostileAllocator does now and then

ALLOCATE = ["raise", "owned", "duplicates", "short", "lose", "none", "nonsense", "forget", "empty", "one at most"]

MISDEEDS: dict[str, list[Any]] = {
    "rank": RANK,
    "limit": LIMIT,
    "victims": VICTIMS,
    "reserve": RESERVE,
    "plan": PLAN,
    "admit": ADMIT,
    "predict": PREDICT,
    "allocate": ALLOCATE,
    "tell": [raises],
}
