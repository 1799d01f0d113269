"""TransformersExecutor: what a batch may contain, besides tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core_engine.driver import HandDriver
from core_engine.executor import Batch
from core_engine.model.executor import TransformersExecutor
from core_engine.model.grammar_masks import RowMasks
from core_engine.request import SamplingParams, Sequence
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import build_executor, lone_logits, token_ids

BLOCK_SIZE = 8


@pytest.fixture
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture
def executor(model: Any) -> TransformersExecutor:
    return build_executor(model)


@pytest.fixture
def driver(executor: TransformersExecutor) -> HandDriver:
    return HandDriver(executor.spec)


def run(executor: TransformersExecutor, batch: Batch) -> list[int]:
    return executor.collect(executor.submit(batch)).token_ids


def compute(executor: TransformersExecutor, driver: HandDriver, plan: list[tuple[Sequence, int]]) -> None:
    batch = driver.bind(plan)
    run(executor, batch)
    driver.advance(batch)


def generate(executor: TransformersExecutor, driver: HandDriver, prompt: list[int], num_tokens: int) -> list[int]:
    sequence = driver.sequence(prompt)
    for _ in range(num_tokens):
        batch = driver.bind([(sequence, sequence.num_pending_tokens)])
        driver.advance(batch, executor.collect(executor.submit(batch)))
    return sequence.token_ids[len(prompt) :]


def test_greedy_tokens_are_the_best_of_lone_runs(model: Any) -> None:
    prompt = token_ids(13, 1)
    expected = []
    for _ in range(5):
        expected.append(int(lone_logits(model, prompt + expected)[-1].argmax()))
    executor = build_executor(model)
    assert generate(executor, HandDriver(executor.spec), prompt, 5) == expected


def test_rows_sample_only_when_caught_up(executor: TransformersExecutor, driver: HandDriver) -> None:
    half, whole = driver.sequence(token_ids(10, 1)), driver.sequence(token_ids(4, 2))
    batch = driver.bind([(half, 5), (whole, 4)])
    assert batch.sample_rows == [1]
    assert len(run(executor, batch)) == 1


def test_nothing_to_sample(executor: TransformersExecutor, driver: HandDriver) -> None:
    sequence = driver.sequence(token_ids(10, 1))
    assert run(executor, driver.bind([(sequence, 5)])) == []


def test_empty_batch(executor: TransformersExecutor) -> None:
    assert run(executor, Batch(iteration=1, block_size=BLOCK_SIZE)) == []


def test_batch_of_idle_rows_only(executor: TransformersExecutor) -> None:
    before = [site.cache.keys.clone() for site in executor.sites]
    assert run(executor, Batch(iteration=1, block_size=BLOCK_SIZE, idle_rows=7)) == []
    for site, keys in zip(executor.sites, before, strict=True):
        assert torch.equal(site.cache.keys.nan_to_num(), keys.nan_to_num())


def test_block_copies_come_first(executor: TransformersExecutor, driver: HandDriver) -> None:
    prompt = token_ids(12, 3)
    first = driver.sequence(prompt)
    expected = run(executor, driver.bind([(first, 12)]))
    # A second sequence takes over copies of the first one's blocks and computes the last token anew.
    second = driver.sequence(prompt)
    second.num_computed_tokens = 11
    batch = driver.bind([(second, 1)])
    assert not set(first.block_table) & set(second.block_table)
    batch.block_copies = list(zip(first.block_table, second.block_table, strict=True))
    assert run(executor, batch) == expected


class OnlyToken:
    """A grammar of one token, or of none."""

    def __init__(self, executor: TransformersExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
        self._masks = executor._grammar_masks
        self._monkeypatch = monkeypatch

    def allow(self, row: int, token_id: int | None) -> None:
        words = torch.full((2, 4), -1, dtype=torch.int32)
        words[row] = 0
        if token_id is not None:
            words[row, token_id // 32] = 1 << token_id % 32
        self._monkeypatch.setattr(self._masks, "fill", lambda sequences: RowMasks([row], words))


@pytest.fixture
def grammar(executor: TransformersExecutor, monkeypatch: pytest.MonkeyPatch) -> OnlyToken:
    return OnlyToken(executor, monkeypatch)


def test_a_grammar_constrains_its_row_only(
    executor: TransformersExecutor, driver: HandDriver, grammar: OnlyToken
) -> None:
    masked, free, chunk = (driver.sequence(token_ids(6, salt)) for salt in range(3))
    batch = driver.bind([(chunk, 3), (masked, 6), (free, 6)])
    unmasked = run(executor, batch)
    only = next(token for token in range(40, 50) if token != unmasked[0])
    grammar.allow(0, only)
    assert run(executor, batch) == [only, unmasked[1]]


def test_a_mask_that_allows_nothing_fails_its_row_only(
    executor: TransformersExecutor, driver: HandDriver, grammar: OnlyToken
) -> None:
    barred, free = driver.sequence(token_ids(6, 0)), driver.sequence(token_ids(6, 1))
    batch = driver.bind([(barred, 6), (free, 6)])
    alone = run(executor, batch)
    grammar.allow(0, None)
    result = executor.collect(executor.submit(batch))
    assert result.token_ids == [-1, alone[1]]
    assert list(result.failed_rows) == [0]
    assert "no token is left" in result.failed_rows[0]


def test_rows_that_are_not_finite_fail_alone(executor: TransformersExecutor, driver: HandDriver) -> None:
    sick, chunk, well = (driver.sequence(token_ids(11, salt)) for salt in range(3))
    compute(executor, driver, [(sick, 10), (well, 10)])
    executor.sites[1].cache.values[:, sick.block_table[0]] = float("nan")
    batch = driver.bind([(chunk, 5), (sick, 1), (well, 1)])
    result = executor.collect(executor.submit(batch))
    assert list(result.failed_rows) == [1]
    assert "not finite" in result.failed_rows[1]
    assert result.token_ids[0] == -1
    assert result.token_ids[1] >= 0


def test_blocks_left_full_of_nan_serve_the_next_owner(model: Any) -> None:
    """Slots beyond a sequence's end are masked, but zero times NaN is NaN: they must be cleared."""
    prompts = [token_ids(length, length) for length in (3, 9, 20)]
    expected = [int(lone_logits(model, prompt)[-1].argmax()) for prompt in prompts]
    executor = build_executor(model)
    for site in executor.sites:
        site.cache.keys[:, :-1] = float("nan")
        site.cache.values[:, :-1] = float("nan")
    driver = HandDriver(executor.spec)
    sequences = [driver.sequence(prompt) for prompt in prompts]
    compute(executor, driver, [(s, s.num_tokens - 1) for s in sequences])
    assert run(executor, driver.bind([(s, 1) for s in sequences])) == expected


def test_logprobs_come_with_the_rows_that_asked(model: Any) -> None:
    prompt = token_ids(7, 2)
    expected = lone_logits(model, prompt)[-1].log_softmax(-1)
    executor = build_executor(model)
    driver = HandDriver(executor.spec)
    plain = driver.sequence(token_ids(5, 1))
    asking = driver.sequence(prompt, SamplingParams(temperature=0.0, logprobs=3))
    result = executor.collect(executor.submit(driver.bind([(plain, 5), (asking, 7)])))
    assert result.logprobs[0] is None
    answer = result.logprobs[1]
    assert answer is not None
    best = expected.topk(3)
    assert [token for token, _ in answer.top] == best.indices.tolist()
    assert [value for _, value in answer.top] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert answer.logprob == pytest.approx(float(expected.max()), abs=1e-4)


def test_attention_outside_a_pass_is_an_error(model: Any, executor: TransformersExecutor) -> None:
    with pytest.raises(RuntimeError, match="outside a forward pass"):
        model(input_ids=torch.tensor([[1, 2]]), use_cache=False)


@pytest.mark.parametrize("vocab_size", [40, 64, 70])
def test_mask_bits_are_least_significant_first(vocab_size: int) -> None:
    allowed = [0, 5, 31, 32, 39]
    words = torch.tensor([[-1, -1], [0, 0]], dtype=torch.int32)
    for token_id in allowed:
        words[1, token_id // 32] |= torch.tensor(1 << token_id % 32, dtype=torch.int64).int()
    logits = torch.zeros((2, vocab_size))
    RowMasks([1], words).apply(logits)
    assert logits[0].isfinite().all()
    assert logits[1].isfinite().nonzero().flatten().tolist() == allowed
