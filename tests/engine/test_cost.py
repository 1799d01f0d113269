from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.cost import CostModel, Load


def load(*chunks: tuple[int, int]) -> Load:
    total = Load()
    for computed, tokens in chunks:
        total.add(computed, tokens)
    return total


def test_load_counts_rows_pairs_and_keys() -> None:
    # Queries see 11, 12 and 13 keys.
    assert load((10, 3)) == Load(rows=3, attention_pairs=11 + 12 + 13, kv_tokens=13)


def test_load_of_chunks_is_the_attention_of_the_whole() -> None:
    assert load((0, 4), (4, 6)).attention_pairs == load((0, 10)).attention_pairs


def test_plus_leaves_the_original_alone() -> None:
    first = load((5, 1))
    second = first.plus(0, 4)
    assert first == load((5, 1))
    assert second == load((5, 1), (0, 4))


def test_nothing_costs_nothing_and_teaches_nothing() -> None:
    model = CostModel()
    model.learn(load((0, 8)), 0.1)
    error = model.error
    model.learn(Load(), 5.0)
    model.learn(load((0, 8)), 0.0)
    assert model.seconds(Load()) == 0.0
    assert model.error == error


def test_compute_is_exact() -> None:
    model = CostModel(row_flops=100.0, attention_flops=2.0)
    assert model.flops(load((10, 3))) == 3 * 100.0 + 36 * 2.0


def test_untrained_model_is_not_trusted() -> None:
    assert not CostModel().trusted


def test_first_measurement_is_believed() -> None:
    model = CostModel()
    model.learn(load((0, 16)), 0.2)
    assert model.seconds(load((0, 16))) == pytest.approx(0.2, rel=0.01)


def test_fewer_rows_than_ever_seen_are_expected_to_take_less() -> None:
    model = CostModel()
    model.learn(load((0, 256)), 0.4)
    assert model.seconds(Load(rows=64)) == pytest.approx(0.1, rel=0.01)


def measured(work: Load) -> float:
    return max(0.010 + 1e-7 * work.kv_tokens, 0.0004 * work.rows + 2e-8 * work.attention_pairs)


def random_load(draw: random.Random) -> Load:
    work = load(*((draw.randrange(1, 600), 1) for _ in range(draw.randrange(1, 48))))
    if draw.random() < 0.5:
        work.add(0, draw.randrange(1, 400))
    return work


def test_learns_a_machine_that_is_memory_bound_below_and_compute_bound_above() -> None:
    draw = random.Random(0)
    model = CostModel()
    for _ in range(3000):
        work = random_load(draw)
        model.learn(work, measured(work))
    assert model.trusted
    errors = sorted(abs(model.seconds(w) - measured(w)) / measured(w) for w in (random_load(draw) for _ in range(200)))
    assert errors[100] < 0.15


def test_follows_a_machine_that_becomes_slower() -> None:
    draw = random.Random(1)
    model = CostModel()
    for factor in (1.0, 3.0):
        for _ in range(2000):
            work = random_load(draw)
            model.learn(work, factor * measured(work))
    work = load(*((100, 1) for _ in range(20)))
    assert model.seconds(work) == pytest.approx(3 * measured(work), rel=0.25)


def test_prompt_part_is_marginal_and_never_negative() -> None:
    model = CostModel()
    draw = random.Random(2)
    for _ in range(500):
        work = random_load(draw)
        model.learn(work, measured(work))
    decodes = load(*((100, 1) for _ in range(8)))
    assert model.prefill_seconds(decodes, decodes) == 0.0
    both = decodes.plus(0, 256)
    assert model.prefill_seconds(both, decodes) == pytest.approx(model.seconds(both) - model.seconds(decodes))


@given(
    st.lists(
        st.tuples(st.integers(1, 40_000), st.integers(0, 10_000), st.floats(1e-6, 100, allow_nan=False)), max_size=60
    ),
    st.integers(1, 70_000),
    st.integers(1, 70_000),
)
def test_more_rows_never_cost_less_whatever_was_learnt(
    history: list[tuple[int, int, float]], rows: int, more: int
) -> None:
    model = CostModel()
    for tokens, computed, seconds in history:
        model.learn(load((computed, tokens)), seconds)
    fewer, many = sorted((rows, more))
    low = model.seconds(Load(fewer, 0, 0))
    high = model.seconds(Load(many, 0, 0))
    assert 0 <= low <= high * (1 + 1e-9) + 1e-12
    assert 0 <= model.error <= 1
