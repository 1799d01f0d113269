"""Texts to embed in virtual time: whole, within the limits of an iteration, in the order that policies rank."""

from __future__ import annotations

import pytest

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import Batch, ModelSpec
from core_engine.lab.simulated import SimulatedExecutor
from core_engine.messages import IterationOutput
from core_engine.request import Request

LONGEST = 100


class Recording(SimulatedExecutor):
    """Remembers how many tokens each row of each batch had."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec, VirtualClock())
        self.batches: list[list[int]] = []

    def submit(self, batch: Batch) -> object:
        self.batches.append(list(batch.num_query_tokens))
        return super().submit(batch)


def embedding_engine(*policies: str, token_limit: int = 128) -> tuple[Engine, Recording]:
    spec = ModelSpec(
        name="embedder",
        architecture="simulated",
        dtype="float32",
        device="simulated",
        vocab_size=1000,
        max_model_len=LONGEST,
        num_blocks=8 * 8,
        block_size=16,
        kv_bytes_per_token=0,
        kind="embed",
        embedding_size=4,
    )
    executor = Recording(spec)
    config = EngineConfig(
        policies=policies, token_limit=token_limit, sequence_limit=8, strict=True, check_integrity=True, seed=0
    )
    return Engine(config, executor, clock=VirtualClock()), executor


def text(id: str, num_tokens: int, **fields: object) -> Request:
    known = {"model": "embedder", "kind": "embed", "prompt_token_ids": list(range(num_tokens))}
    return Request(id=id, **{**known, **fields})  # type: ignore[arg-type]


def run(engine: Engine) -> list[IterationOutput]:
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
        assert len(outputs) < 1000
    return outputs


def finished(outputs: list[IterationOutput]) -> list[str]:
    return [outcome.request_id for output in outputs for outcome in output.finished]


@pytest.mark.parametrize(
    "policy", ["stall_free", "orca", "static_batch", "prefill_first", "stretch", "prefill_share", "shortest_first"]
)
def test_every_text_is_computed_whole_and_once(policy: str) -> None:
    engine, executor = embedding_engine(policy)
    lengths = [1, 15, 16, 17, 100, 99, 3, 64, 64, 1, 50, 100]
    for number, length in enumerate(lengths):
        engine.submit(text(str(number), length))
    outputs = run(engine)
    assert sorted(length for batch in executor.batches for length in batch) == sorted(lengths)
    assert all(sum(batch) <= 128 for batch in executor.batches)
    pieces = {piece.request_id: piece for output in outputs for piece in output.outputs}
    assert len(pieces) == len(lengths)
    for piece in pieces.values():
        assert (piece.token_ids, piece.finish_reason, len(piece.embedding or b"")) == ([], "stop", 4 * 4)
    outcomes = [outcome for output in outputs for outcome in output.finished]
    assert {(outcome.num_output_tokens, outcome.num_cached_tokens) for outcome in outcomes} == {(0, 0)}
    assert sum(outcome.num_prompt_tokens for outcome in outcomes) == sum(lengths)


def test_texts_are_batched_up_to_the_token_limit() -> None:
    engine, executor = embedding_engine()
    for number in range(6):
        engine.submit(text(str(number), 50))
    run(engine)
    assert executor.batches == [[50, 50], [50, 50], [50, 50]]


def test_the_longest_text_fits_whatever_the_token_limit() -> None:
    engine, executor = embedding_engine(token_limit=8)
    engine.submit(text("long", LONGEST))
    assert finished(run(engine)) == ["long"]
    assert executor.batches == [[LONGEST]]


def test_equal_texts_find_nothing_of_each_other() -> None:
    engine, executor = embedding_engine("prefix_cache")
    for number in range(3):
        engine.submit(text(str(number), 64))
        run(engine)
    assert executor.batches == [[64]] * 3


def test_rank_decides_who_goes_first() -> None:
    engine, _ = embedding_engine("priority")
    for number in range(4):
        engine.submit(text(f"batch-{number}", LONGEST, class_name="batch", priority=10))
    engine.submit(text("urgent", LONGEST, class_name="interactive", priority=-10))
    assert finished(run(engine))[0] == "urgent"


def test_admission_holds_for_texts() -> None:
    engine, _ = embedding_engine("queue_limit:max_requests=2")
    for number in range(4):
        engine.submit(text(str(number), LONGEST))
    outputs = run(engine)
    refused = [rejected for output in outputs for rejected in output.rejected]
    assert len(refused) == 2
    assert all(rejected.retry_after_seconds for rejected in refused)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (text("x", LONGEST + 1), "context_length_exceeded"),
        (text("x", 5, kind="generate"), "unsupported_kind"),
        (text("x", 5, n=2), "invalid_n"),
        (text("x", 0), "empty_prompt"),
        (text("x", 5, model="other"), "model_not_found"),
    ],
)
def test_what_can_never_be_embedded_is_refused(request_: Request, reason: str) -> None:
    engine, executor = embedding_engine()
    engine.submit(request_)
    engine.submit(text("good", 5))
    outputs = run(engine)
    assert [rejected.reason for output in outputs for rejected in output.rejected] == [reason]
    assert finished(outputs) == ["good"]
    assert executor.batches == [[5]]


def test_a_cancelled_text_is_never_computed() -> None:
    engine, executor = embedding_engine()
    for number in range(3):
        engine.submit(text(str(number), LONGEST))
    engine.step()
    engine.cancel("1")
    run(engine)
    assert executor.batches == [[LONGEST], [LONGEST]]
