"""Log-probabilities of prompts equal those of plain transformers, however the prompt is computed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from core_engine import Engine, EngineConfig, Request, SamplingParams
from core_engine.model import prompt_scores
from core_engine.model.executor import TransformersExecutor
from core_engine.model.head import Head
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import build_executor, lone_logits, token_ids

LENGTHS = (150, 9, 70, 1, 2, 33)
TOLERANCE = 1e-4


def asking(name: str, prompt: list[int], *, rivals: int, output: int = 0, **sampling: Any) -> Request:
    params = SamplingParams(temperature=0, max_tokens=output, prompt_logprobs=rivals, ignore_eos=True, **sampling)
    return Request(id=name, model="tiny", prompt_token_ids=prompt, sampling=params)


def serve(
    executor: TransformersExecutor, requests: list[Request], **options: Any
) -> tuple[Engine, dict[str, list[Any]]]:
    config = EngineConfig(block_size=8, token_limit=64, sequence_limit=8, strict=True, check_integrity=True, **options)
    engine = Engine(config, executor)
    told: dict[str, list[Any]] = {request.id: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        for output in engine.step().outputs:
            for piece in output.prompt_logprobs:
                assert piece.first == len(told[output.request_id]) + 1
                told[output.request_id] += piece.tokens()
    return engine, told


def check(model: Any, request: Request, told: list[Any]) -> None:
    prompt = request.prompt_token_ids
    expected = lone_logits(model, prompt)[:-1].log_softmax(-1)
    assert len(told) == len(prompt) - 1
    for token, logprobs, (logprob, rank, rivals) in zip(prompt[1:], expected, told, strict=True):
        assert logprob == pytest.approx(float(logprobs[token]), abs=TOLERANCE)
        better = int((logprobs > logprobs[token] + TOLERANCE).sum())
        assert better < rank <= int((logprobs >= logprobs[token] - TOLERANCE).sum())
        best = logprobs.topk(request.sampling.prompt_logprobs).values.tolist()
        assert [value for _, value in rivals] == pytest.approx(best, abs=TOLERANCE)
        assert [float(logprobs[token_id]) for token_id, _ in rivals] == pytest.approx(best, abs=TOLERANCE)


# Soft-capped and scaled heads, a decoder inside a decoder, an answer of a kind of its own.
@pytest.mark.parametrize(
    "model_type",
    ["llama", "gpt2", "gemma2", "granite", "cohere", "opt", "llama4_text", "mixtral", "modernbert-decoder"],
)
@pytest.mark.parametrize("slice_rows", [8, 1000])
def test_chunks_beside_others_equal_transformers(
    model_type: str, slice_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_scores, "_SLICE_BYTES", 4 * 128 * slice_rows)
    model = tiny_model(model_type)
    prompts = [token_ids(length, salt) for salt, length in enumerate(LENGTHS)]
    requests = [
        asking(str(i), prompt, rivals=(3, 0, 20)[i % 3], output=(0, 5)[i % 2]) for i, prompt in enumerate(prompts)
    ]
    _, told = serve(build_executor(model), requests)
    for request in requests:
        check(model, request, told[request.id])


def test_preempted_prompts_equal_transformers() -> None:
    model = tiny_model("llama")
    executor = build_executor(model)
    executor._spec = msgspec.structs.replace(executor.spec, num_blocks=24)  # room for two of the four
    requests = [asking(str(i), token_ids(60 + 9 * i, i), rivals=2, output=60) for i in range(4)]
    engine, told = serve(executor, requests, policies=("prefix_cache",))
    assert engine.state.num_preemptions > 2
    for request in requests:
        check(model, request, told[request.id])


def test_memory_is_bounded_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """No head call gets more rows than a slice has, whatever the batch."""
    rows: list[int] = []
    genuine = Head.logits

    def watched(head: Head, answer: Any, index: torch.Tensor) -> torch.Tensor:
        rows.append(index.shape[0])
        return genuine(head, answer, index)

    monkeypatch.setattr(Head, "logits", watched)
    monkeypatch.setattr(prompt_scores, "_SLICE_BYTES", 4 * 128 * 16)
    serve(build_executor(tiny_model("llama")), [asking("r", token_ids(150, 1), rivals=1)])
    assert max(rows) == 16
    assert sum(rows) < 149 + 8 * 4


def test_half_precision_is_scored_in_single() -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    request = asking("r", token_ids(40, 1), rivals=5)
    _, told = serve(build_executor(model), [request])
    logprobs = lone_logits(model, request.prompt_token_ids)[:-1].log_softmax(-1)
    expected = logprobs.gather(1, torch.tensor(request.prompt_token_ids[1:]).unsqueeze(1)).squeeze(1)
    assert [logprob for logprob, _, _ in told["r"]] == pytest.approx(expected.tolist(), abs=0.6)
    for _, _, rivals in told["r"]:
        assert sum(2.718281828**value for _, value in rivals) <= 1.0001


def test_a_plain_batch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Head, "listening", lambda head, answers: pytest.fail("nobody asked"))
    plain = Request(id="r", model="tiny", prompt_token_ids=token_ids(9, 1), sampling=SamplingParams(max_tokens=2))
    _, told = serve(build_executor(tiny_model("llama")), [plain])
    assert told == {"r": []}
