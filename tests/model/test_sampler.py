"""Sampler: every parameter, alone and among neighbours."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from core_engine.model.sampler import Sampler
from tests.model.sampling import EOS, draws, sample, sequence

INF = float("inf")
NAN = float("nan")


def test_greedy_takes_the_best_of_each_row() -> None:
    assert sample([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]], [sequence(), sequence()]) == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_float_type(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]], dtype=dtype)
    assert sample(logits, [sequence(temperature=0.01)]) == [1]
    assert sample(logits, [sequence(logit_bias={0: 50.0})]) == [0]


def test_logits_are_left_as_they_were() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    before = logits.clone()
    sample(logits, [sequence(logit_bias={0: 50.0}, temperature=0.5, top_k=1, allowed_token_ids=(0, 1))])
    assert torch.equal(logits, before)


# What is drawn follows the distribution asked for.

LOGITS = [1.0, 2.0, 0.0, 1.5, -1.0]


def softmax(logits: list[float], temperature: float = 1.0) -> list[float]:
    weights = [math.exp(x / temperature) for x in logits]
    return [weight / sum(weights) for weight in weights]


def assert_distributed(tokens: list[int], probabilities: list[float]) -> None:
    """Chi-squared, at a level that one seed in a million misses; the seeds are fixed."""
    counts = Counter(tokens)
    assert all(probabilities[token] > 0 for token in counts)
    expected = {token: p * len(tokens) for token, p in enumerate(probabilities) if p > 0}
    statistic = sum((counts[token] - n) ** 2 / n for token, n in expected.items())
    freedom = max(1, len(expected) - 1)
    assert statistic < freedom + 5 * math.sqrt(2 * freedom) + 12


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_temperature(temperature: float) -> None:
    assert_distributed(draws(LOGITS, 4000, temperature=temperature), softmax(LOGITS, temperature))


def test_a_distribution_wider_than_a_block_of_the_inversion() -> None:
    logits = [math.log(1 + i % 3) for i in range(600)]
    tokens = draws(logits, 12_000)
    assert_distributed([token % 3 for token in tokens], [1 / 6, 2 / 6, 3 / 6])
    assert_distributed([token // 200 for token in tokens], [1 / 3, 1 / 3, 1 / 3])


def test_a_tiny_temperature_is_greedy() -> None:
    assert set(draws(LOGITS, 50, temperature=1e-6)) == {1}


def renormalised(kept: set[int], probabilities: list[float]) -> list[float]:
    total = sum(probabilities[token] for token in kept)
    return [p / total if token in kept else 0.0 for token, p in enumerate(probabilities)]


@pytest.mark.parametrize(("top_k", "kept"), [(1, {1}), (2, {1, 3}), (4, {0, 1, 2, 3}), (99, {0, 1, 2, 3, 4})])
def test_top_k(top_k: int, kept: set[int]) -> None:
    assert_distributed(draws(LOGITS, 2000, top_k=top_k), renormalised(kept, softmax(LOGITS)))


# softmax(LOGITS) is about .166 .450 .061 .273 .022 of the whole, best first: 1 3 0 2 4.
@pytest.mark.parametrize(
    ("top_p", "kept"), [(1e-9, {1}), (0.44, {1}), (0.5, {1, 3}), (0.85, {0, 1, 3}), (0.97, {0, 1, 2, 3})]
)
def test_top_p(top_p: float, kept: set[int]) -> None:
    assert_distributed(draws(LOGITS, 2000, top_p=top_p), renormalised(kept, softmax(LOGITS)))


def test_top_p_counts_what_top_k_left() -> None:
    # Of the two best, the first has .622 of what is left, which is more than .6, but less than .7.
    assert set(draws(LOGITS, 300, top_k=2, top_p=0.6)) == {1}
    assert set(draws(LOGITS, 300, top_k=2, top_p=0.7)) == {1, 3}


@pytest.mark.parametrize(("min_p", "kept"), [(0.99, {1}), (0.5, {1, 3}), (0.3, {0, 1, 3}), (0.1, {0, 1, 2, 3})])
def test_min_p(min_p: float, kept: set[int]) -> None:
    assert_distributed(draws(LOGITS, 2000, min_p=min_p), renormalised(kept, softmax(LOGITS)))


def test_top_k_cuts_ties() -> None:
    assert len(set(draws([1.0] * 8, 200, top_k=3))) == 3


def test_a_nucleus_wider_than_the_candidates() -> None:
    logits = [0.0] * 3000 + [-30.0] * 3000
    tokens = draws(logits, 2000, top_p=0.9)
    assert max(tokens) < 3000
    assert len(set(tokens)) > 1024


# Penalties and biases.


def test_repetition_penalty_counts_the_prompt_too() -> None:
    logits = [[0.0, 3.0, 2.9, -1.0]]
    assert sample(logits, [sequence([1], repetition_penalty=1.2)]) == [2]
    assert sample(logits, [sequence([3], [1], repetition_penalty=1.2)]) == [2]
    assert sample(logits, [sequence([3], repetition_penalty=1.2)]) == [1]


def test_repetition_penalty_pushes_negative_logits_down() -> None:
    assert sample([[-1.0, -1.1, -9.0]], [sequence([0, 2], repetition_penalty=1.5)]) == [1]


def test_presence_and_frequency_penalties_count_output_only() -> None:
    logits = [[0.0, 3.0, 2.0]]
    assert sample(logits, [sequence([1, 1, 1], presence_penalty=2.0, frequency_penalty=2.0)]) == [1]
    assert sample(logits, [sequence([0], [1], presence_penalty=1.5)]) == [2]


def test_presence_counts_once_and_frequency_each_time() -> None:
    logits = [[0.0, 3.0, 2.0]]
    said = [1, 1, 1]
    assert sample(logits, [sequence([0], said, presence_penalty=0.5)]) == [1]
    assert sample(logits, [sequence([0], said, frequency_penalty=0.5)]) == [2]
    assert sample(logits, [sequence([0], said, frequency_penalty=0.3)]) == [1]
    assert sample(logits, [sequence([0], said, presence_penalty=0.2, frequency_penalty=0.3)]) == [2]


def test_logit_bias() -> None:
    logits = [[0.0, 3.0, 2.0]]
    assert sample(logits, [sequence(logit_bias={0: 10.0})]) == [0]
    assert sample(logits, [sequence(logit_bias={1: -100.0, 0: 1.0})]) == [2]


# Bans and allow lists.

BEST_IS_EOS = [[0.0, 1.0, 9.0, 2.0, 8.0]]


def test_min_tokens_bars_end_and_stops_until_reached() -> None:
    assert EOS == 2
    assert sample(BEST_IS_EOS, [sequence(min_tokens=2, stop_token_ids=(4,))]) == [3]
    assert sample(BEST_IS_EOS, [sequence([1], [0], min_tokens=2, stop_token_ids=(4,))]) == [3]
    assert sample(BEST_IS_EOS, [sequence([1], [0, 0], min_tokens=2, stop_token_ids=(4,))]) == [2]


def test_min_tokens_leaves_an_ignored_end_of_sequence_alone() -> None:
    assert sample(BEST_IS_EOS, [sequence(min_tokens=2, ignore_eos=True)]) == [2]


def test_stop_tokens_are_free_without_min_tokens() -> None:
    assert sample(BEST_IS_EOS, [sequence(stop_token_ids=(2, 4))]) == [2]


def test_allowed_tokens() -> None:
    assert sample(BEST_IS_EOS, [sequence(allowed_token_ids=(0, 1))]) == [1]
    assert set(draws(LOGITS, 200, allowed_token_ids=(2, 4))) == {2, 4}


def test_bad_words_of_one_token() -> None:
    assert sample(BEST_IS_EOS, [sequence(bad_words_token_ids=((2,), (4,)))]) == [3]


def test_bad_words_of_several_tokens_are_barred_at_the_last() -> None:
    words = ((3, 1, 2),)
    assert sample(BEST_IS_EOS, [sequence([3], [1], bad_words_token_ids=words)]) == [4]
    assert sample(BEST_IS_EOS, [sequence([3], [0], bad_words_token_ids=words)]) == [2]
    assert sample(BEST_IS_EOS, [sequence([1], bad_words_token_ids=words)]) == [2]


def test_masks_of_grammars() -> None:
    mask = {0, 1, 3}
    assert sample(BEST_IS_EOS * 2, [sequence(), sequence()], {1: mask}) == [2, 3]
    assert set(
        sample(
            torch.tensor(LOGITS).expand(100, -1),
            [sequence(seed=i, temperature=1.0) for i in range(100)],
            dict.fromkeys(range(100), mask),
        )
    ) <= {0, 1, 3}


def test_a_grammar_wins_where_bans_would_leave_it_nothing() -> None:
    only_end, two = {EOS}, {1, 4}
    for sampling in ({"min_tokens": 3}, {"allowed_token_ids": (0, 1)}, {"bad_words_token_ids": ((EOS,),)}):
        assert sample(BEST_IS_EOS, [sequence(**sampling)], {0: only_end}) == [EOS]
    assert sample(BEST_IS_EOS, [sequence(allowed_token_ids=(1,))], {0: two}) == [1]
    assert sample(BEST_IS_EOS, [sequence(bad_words_token_ids=((1,), (4,)))], {0: two}) == [4]
    assert sample(BEST_IS_EOS * 2, [sequence(min_tokens=3)] * 2, {1: only_end}) == [4, EOS]


def test_excluding_every_token_fails_the_row() -> None:
    sampled = Sampler((EOS,)).sample(torch.tensor(BEST_IS_EOS * 2), [sequence(allowed_token_ids=()), sequence()])
    token_ids, _, failures = sampled.fetch()
    assert token_ids == [-1, 2]
    assert list(failures) == [0]


# Rows that fail.


@pytest.mark.parametrize("bad", [[0.0, NAN, 1.0], [0.0, INF, 1.0], [-INF, -INF, -INF]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_finite_best_fail_alone(bad: list[float], temperature: float) -> None:
    rows = [sequence(temperature=temperature, top_p=0.9, logprobs=1) for _ in range(2)]
    token_ids, logprobs, failures = Sampler(()).sample(torch.tensor([bad, [0.0, 50.0, 1.0]]), rows).fetch()
    assert token_ids == [-1, 1]
    assert list(failures) == [0]
    assert logprobs[1] is not None
    assert logprobs[1].logprob == pytest.approx(0.0, abs=1e-6)


def test_single_tokens_at_minus_infinity_are_no_failure() -> None:
    assert sample([[-INF, 1.0, 0.0]], [sequence()]) == [1]
    assert 0 not in draws([-INF, 1.0, 0.0], 200)


# Log-probabilities.


def test_logprobs_are_of_the_raw_distribution() -> None:
    row = sequence([1], logprobs=2, temperature=0.7, logit_bias={4: 100.0}, top_k=1)
    token_ids, logprobs, _ = Sampler(()).sample(torch.tensor([LOGITS]), [row]).fetch()
    assert token_ids == [4]
    expected = [math.log(p) for p in softmax(LOGITS)]
    answer = logprobs[0]
    assert answer is not None
    assert answer.logprob == pytest.approx(expected[4], abs=1e-5)
    assert [token for token, _ in answer.top] == [1, 3]
    assert [value for _, value in answer.top] == pytest.approx([expected[1], expected[3]], abs=1e-5)


def test_each_row_gets_as_many_rivals_as_it_asked_for() -> None:
    rows = [sequence(logprobs=0), sequence(), sequence(logprobs=4)]
    _, logprobs, _ = Sampler(()).sample(torch.tensor([LOGITS] * 3), rows).fetch()
    assert [None if answer is None else len(answer.top) for answer in logprobs] == [0, None, 4]


def test_nobody_asked_for_logprobs() -> None:
    assert Sampler(()).sample(torch.tensor([LOGITS]), [sequence()]).fetch()[1] == []


def test_log_probabilities_that_are_not_finite() -> None:
    _, logprobs, _ = Sampler(()).sample(torch.tensor([[-INF, 1.0, -INF]]), [sequence(logprobs=3)]).fetch()
    answer = logprobs[0]
    assert answer is not None
    assert [value for _, value in answer.top] == [0.0, -9999.0, -9999.0]


# Seeds.


def test_neighbours_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 2000, generator=generator) * 3
    kinds: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.5, "top_k": 1500, "logprobs": 2},
        {"temperature": 1.0, "min_p": 0.05, "presence_penalty": 1.0},
        {"temperature": 0.0, "allowed_token_ids": (5, 6)},
        {"temperature": 2.0, "top_p": 0.999, "bad_words_token_ids": ((3,),)},
    ]
    rows = [sequence([1, 2], [7] * i, seed=i, **kind) for i, kind in enumerate(kinds)]
    together = sample(logits, rows)
    assert together == [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    order = [3, 0, 5, 1, 4, 2]
    assert [together[i] for i in order] == sample(logits[order], [rows[i] for i in order])


def test_seed_sample_index_and_position_all_count() -> None:
    flat = [0.0] * 5000

    def drawn(**options: int) -> int:
        length = options.pop("position", 1)
        return sample([flat], [sequence([1] * length, temperature=1.0, **options)])[0]

    assert drawn(seed=1) == drawn(seed=1)
    variants = [
        drawn(seed=1),
        drawn(seed=2),
        drawn(seed=1 << 40),
        drawn(seed=-1),
        drawn(seed=1, sample_index=1),
        drawn(seed=1, position=2),
    ]
    assert len(set(variants)) == len(variants)
