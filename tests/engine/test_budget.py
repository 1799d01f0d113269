from __future__ import annotations

from typing import Any

import pytest

from core_engine.budget import Budget
from core_engine.cost import CostModel, Load
from core_engine.plan import IterationPlan, PrefillLimit
from core_engine.request import Sequence, Status
from tests.engine.helpers import make_sequence

SIZE = 16


def budget(reserve: int = 0, **limits: Any) -> Budget:
    return Budget(
        **{
            "token_limit": 100,
            "sequences_left": 4,
            "blocks_left": 50,
            "block_size": SIZE,
            "reserve": lambda sequence: reserve,
            **limits,
        }
    )


def decode(id: int, tokens: int = 20, blocks: int | None = None) -> Sequence:
    table = list(range(blocks if blocks is not None else -(-tokens // SIZE)))
    return make_sequence(id, prompt=tokens - 1, output=1, computed=tokens - 1, blocks=table, running=True)


def prefill(id: int, prompt: int, computed: int) -> Sequence:
    blocks = list(range(-(-computed // SIZE)))
    return make_sequence(id, prompt=prompt, computed=computed, blocks=blocks, running=True)


def test_takes_what_is_pending_and_no_more() -> None:
    left = budget()
    assert left.take(make_sequence(1, prompt=30), 1000) == 30
    assert left.tokens_left == 70
    assert left.plan() == IterationPlan({1: 30})


def test_calls_for_one_sequence_add_up() -> None:
    left, sequence = budget(), make_sequence(1, prompt=30)
    assert [left.take(sequence, 12), left.take(sequence, 12), left.take(sequence, 12)] == [12, 12, 6]
    assert left.plan().num_tokens == {1: 30}
    assert left.sequences_left == 3
    assert left.blocks_left == 48


def test_clamps_to_the_token_limit() -> None:
    left = budget(token_limit=40)
    assert left.take(make_sequence(1, prompt=30), 30) == 30
    assert left.take(make_sequence(2, prompt=30), 30) == 10
    assert left.take(decode(3), 1) == 0


def test_whole_is_all_or_nothing() -> None:
    left = budget(token_limit=40)
    assert left.take(make_sequence(1, prompt=30), 30, whole=True) == 30
    assert left.take(make_sequence(2, prompt=30), 30, whole=True) == 0
    assert left.tokens_left == 10


@pytest.mark.parametrize("nonsense", [0, -1, -1000])
def test_nothing_for_nothing(nonsense: int) -> None:
    left = budget()
    assert left.take(make_sequence(1), nonsense) == 0
    assert left.take(decode(2), nonsense) == 0
    assert left.plan().num_tokens == {}


@pytest.mark.parametrize("nonsense", [float("nan"), 2.5, "3", None, True])
def test_only_ints_can_be_taken(nonsense: Any) -> None:
    with pytest.raises(TypeError):
        budget().take(make_sequence(1), nonsense)


def test_a_finished_sequence_gets_nothing() -> None:
    sequence = make_sequence(1)
    sequence.status = Status.FINISHED
    assert budget().take(sequence, 5) == 0


def test_seats_end_starts_but_not_those_who_run() -> None:
    left = budget(sequences_left=1)
    assert left.take(make_sequence(1), 10) == 10
    assert left.take(make_sequence(2), 10) == 0
    assert left.take(decode(3), 1) == 1
    assert left.take(prefill(4, 40, 16), 24) == 24


def test_a_decode_in_a_new_block_costs_a_block() -> None:
    left = budget(blocks_left=1)
    assert left.take(decode(1, tokens=17, blocks=1), 1) == 1
    assert left.blocks_left == 0
    assert left.take(decode(2, tokens=17, blocks=1), 1) == 0
    assert left.clamped == {2: 1}
    assert left.take(decode(3, tokens=17, blocks=2), 1) == 1


def test_a_prompt_is_cut_to_the_blocks_left() -> None:
    left = budget(blocks_left=2)
    assert left.take(make_sequence(1, prompt=60), 60) == 2 * SIZE
    assert left.clamped == {1: 2}
    assert left.blocks_left == 0


def test_room_in_the_last_block_is_used_without_a_new_one() -> None:
    left = budget(blocks_left=0)
    assert left.take(prefill(1, prompt=40, computed=20), 20) == 12


def test_a_reservation_is_all_or_nothing() -> None:
    left = budget(reserve=10, blocks_left=15)
    assert left.take(make_sequence(1, prompt=20), 20) == 20
    assert left.blocks_left == 5
    assert left.take(make_sequence(2, prompt=20), 20) == 0
    assert left.clamped == {2: 5}
    assert left.blocks_left == 5


def test_later_takes_live_on_the_reservation() -> None:
    left, sequence = budget(reserve=10, blocks_left=15), make_sequence(1, prompt=90)
    assert left.take(sequence, 20) == 20
    assert left.take(sequence, 70) == 70
    assert left.blocks_left == 5


def test_a_reservation_below_the_need_grows_to_it() -> None:
    left = budget(reserve=1, blocks_left=15)
    assert left.take(make_sequence(1, prompt=90), 90) == 90
    assert left.blocks_left == 15 - 6


class TestGates:
    def test_prompt_tokens_bound_all_chunks_together_but_no_decode(self) -> None:
        left = budget(limit=PrefillLimit(prompt_tokens=25, reasons={"prompt_tokens": "gate: busy"}))
        assert left.take(decode(1), 1) == 1
        assert left.take(prefill(2, 40, 16), 24) == 24
        assert left.take(make_sequence(3, prompt=30), 30) == 1
        assert left.held == {3: "gate: busy"}
        assert left.take(make_sequence(4, prompt=30), 30) == 0

    def test_new_sequences_bound_starts_only(self) -> None:
        left = budget(limit=PrefillLimit(new_sequences=1, reasons={"new_sequences": "gate"}))
        assert left.take(make_sequence(1), 10) == 10
        assert left.take(make_sequence(2), 10) == 0
        assert left.held == {2: "gate"}
        assert left.take(prefill(3, 40, 16), 24) == 24

    def test_a_held_sequence_does_not_start(self) -> None:
        left = budget(limit=PrefillLimit(held={1: "gate: too long"}))
        assert left.take(make_sequence(1), 10) == 0
        assert left.take(make_sequence(2), 10) == 10
        assert left.held == {1: "gate: too long"}

    def test_blocks_to_keep_free_bind_prompts_but_no_decode(self) -> None:
        left = budget(blocks_left=3, limit=PrefillLimit(keep_free_blocks=2, reasons={"keep_free_blocks": "gate"}))
        assert left.take(make_sequence(1, prompt=40), 40) == SIZE
        assert left.held == {1: "gate"}
        assert left.clamped == {}
        assert left.take(decode(2, tokens=17, blocks=1), 1) == 1

    def test_exempt_sequences_pass_every_gate(self) -> None:
        limit = PrefillLimit(prompt_tokens=0, new_sequences=0, keep_free_blocks=50, held={1: "no"})
        left = budget(limit=limit, exempt={1})
        assert left.take(make_sequence(1, prompt=40), 40) == 40
        assert left.take(make_sequence(2, prompt=40), 40) == 0

    def test_the_anchor_keeps_one_block_of_tokens_over_all_calls(self) -> None:
        limit = PrefillLimit(prompt_tokens=0, keep_free_blocks=1000)
        left, anchor = budget(limit=limit, floor_id=1), prefill(1, 60, 0)
        assert [left.take(anchor, 10), left.take(anchor, 10), left.take(anchor, 10)] == [10, 6, 0]

    def test_the_anchors_floor_takes_nothing_away_that_gates_allow(self) -> None:
        left = budget(blocks_left=12, limit=PrefillLimit(keep_free_blocks=8), floor_id=1)
        assert left.take(prefill(1, 90, 0), 90) == 4 * SIZE

    def test_seconds_bound_what_prompts_add_to_the_decodes(self) -> None:
        cost = CostModel()
        for rows in (1, 2, 4, 8, 16, 32, 64, 128) * 200:
            cost.learn(Load(rows, 0, 0), 0.010 + 0.001 * rows)
        assert cost.trusted
        decodes = Load(8, 0, 0)
        left = budget(limit=PrefillLimit(seconds=0.020, reasons={"seconds": "gate"}), cost=cost, decodes=decodes)
        granted = left.take(make_sequence(1, prompt=90), 90)
        assert granted == pytest.approx(20, abs=3)
        assert left.take(make_sequence(2, prompt=90), 90) <= 1
        assert left.held[1] == "gate"

    def test_zero_seconds_let_no_prompt_in(self) -> None:
        cost = CostModel()
        cost.learn(Load(8, 0, 0), 0.1)
        left = budget(limit=PrefillLimit(seconds=0.0), cost=cost, decodes=Load(1, 0, 0))
        assert left.take(make_sequence(1, prompt=90), 90) == 0


class TestRequire:
    def test_takes_one_block_of_prompt_or_one_token_past_the_gates(self) -> None:
        left = budget(limit=PrefillLimit(prompt_tokens=0, new_sequences=0, held={1: "no"}))
        assert left.require(make_sequence(1, prompt=40))
        assert left.require(decode(2))
        assert left.plan().num_tokens == {1: SIZE, 2: 1}

    def test_twice_is_once(self) -> None:
        left, sequence = budget(), make_sequence(1, prompt=40)
        assert left.require(sequence)
        assert left.require(sequence)
        assert left.granted(1) == SIZE

    def test_keeps_to_the_engines_own_limits(self) -> None:
        assert not budget(sequences_left=0).require(make_sequence(1))
        assert not budget(blocks_left=0).require(make_sequence(1))
        assert not budget(token_limit=0).require(make_sequence(1))

    def test_what_is_added_to_it_is_gated(self) -> None:
        left, sequence = budget(limit=PrefillLimit(prompt_tokens=0)), prefill(1, 60, 0)
        left.require(sequence)
        assert left.take(sequence, 44) == 0

    def test_when_closed_nobody_starts_but_the_exempt(self) -> None:
        left = budget(exempt={2})
        left.close()
        assert left.take(make_sequence(1), 10) == 0
        assert left.take(make_sequence(2), 10) == 10
        assert left.take(decode(3), 1) == 1
        assert "overdue" in left.held[1]


class TestLonePrompt:
    def test_runs_alone_above_the_token_limit(self) -> None:
        left = budget(lone_prompt_tokens=300)
        assert left.take(make_sequence(1, prompt=250), 250, whole=True) == 250
        assert left.take(decode(2), 1) == 0
        assert left.take(make_sequence(3, prompt=5), 5) == 0
        assert left.plan(idle_rows=5) == IterationPlan({1: 250}, True, 0)

    def test_not_beside_anybody(self) -> None:
        left = budget(lone_prompt_tokens=300)
        assert left.take(decode(2), 1) == 1
        assert left.take(make_sequence(1, prompt=250), 250, whole=True) == 0

    def test_not_beyond_what_memory_allows(self) -> None:
        assert budget(lone_prompt_tokens=200).take(make_sequence(1, prompt=250), 250, whole=True) == 0

    def test_not_for_a_planner_that_does_not_ask_for_it(self) -> None:
        assert budget().take(make_sequence(1, prompt=250), 250, whole=True) == 0


def test_idle_rows_fit_the_tokens_left() -> None:
    left = budget(token_limit=10)
    left.take(make_sequence(1, prompt=7), 7)
    assert left.plan(deliver=False, idle_rows=9) == IterationPlan({1: 7}, False, 3)


def test_a_plan_does_not_change_with_later_takes() -> None:
    left = budget()
    plan = left.plan()
    left.take(make_sequence(1), 5)
    assert plan.num_tokens == {}
