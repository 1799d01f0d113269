"""Whatever a planner takes stays within every limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_engine.plan import PrefillLimit
from core_engine.request import Sequence, Status
from tests.engine.helpers import make_sequence
from tests.engine.test_budget import SIZE, budget, decode, prefill


@st.composite
def populations(draw: st.DrawFn) -> list[Sequence]:
    found = []
    for id in range(draw(st.integers(1, 8))):
        match draw(st.integers(0, 2)):
            case 0:
                found.append(make_sequence(id, prompt=draw(st.integers(1, 80))))
            case 1:
                found.append(decode(id, tokens=draw(st.integers(2, 50))))
            case _:
                prompt = draw(st.integers(2, 80))
                found.append(prefill(id, prompt, draw(st.integers(0, prompt - 2))))
    return found


limits = st.builds(
    PrefillLimit,
    prompt_tokens=st.none() | st.integers(0, 60),
    new_sequences=st.none() | st.integers(0, 3),
    keep_free_blocks=st.none() | st.integers(0, 10),
    held=st.dictionaries(st.integers(0, 7), st.just("held"), max_size=2),
)


@given(
    populations(),
    limits,
    st.lists(st.tuples(st.integers(0, 7), st.integers(-3, 90), st.booleans()), max_size=20),
    st.integers(0, 100),
    st.integers(0, 4),
    st.integers(0, 20),
    st.integers(0, 8),
)
def test_whatever_is_taken_stays_within_every_limit(
    population: list[Sequence],
    limit: PrefillLimit,
    takes: list[tuple[int, int, bool]],
    token_limit: int,
    seats: int,
    blocks: int,
    reserve: int,
) -> None:
    left = budget(
        reserve=reserve, token_limit=token_limit, sequences_left=seats, blocks_left=blocks, limit=limit, floor_id=0
    )
    for index, num_tokens, whole in takes:
        if index < len(population):
            pending = population[index].num_pending_tokens - left.granted(index)
            granted = left.take(population[index], num_tokens, whole)
            assert 0 <= granted <= max(0, num_tokens)
            assert not whole or granted in (0, min(num_tokens, pending))
    plan = left.plan().num_tokens
    started = [s for s in population if s.id in plan and s.status is Status.WAITING]
    needed = 0
    for sequence in population:
        tokens = plan.get(sequence.id, 0)
        assert tokens <= sequence.num_pending_tokens
        if tokens:
            total = -(-(sequence.num_computed_tokens + tokens) // SIZE)
            needed += max(total, reserve if sequence in started else 0, len(sequence.block_table))
            needed -= len(sequence.block_table)
    assert sum(plan.values()) <= token_limit
    assert len(started) <= seats
    assert needed <= blocks
    assert needed == blocks - left.blocks_left
    assert not any(s.id in limit.held for s in started)
    prompts = sum(n for s in population if (n := plan.get(s.id, 0)) and (s in started or s.num_pending_tokens > 1))
    if limit.prompt_tokens is not None:
        assert prompts <= limit.prompt_tokens + (SIZE if 0 in plan else 0)
    if limit.new_sequences is not None:
        assert len(started) <= limit.new_sequences
