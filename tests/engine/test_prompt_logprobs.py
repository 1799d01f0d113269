"""Log-probabilities of prompts: every token's once, in order, whatever happens to the sequence on the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.engine import Engine
from core_engine.messages import SequenceOutput
from core_engine.prompt_logprobs import PromptLogprobs, prompt_positions
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine


def asking(name: str, length: int, *, rivals: int = 2, output: int = 3, **fields: Any) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=output, prompt_logprobs=rivals, ignore_eos=True)
    prompt = [(i * 7) % 990 for i in range(length)]
    return Request(id=name, model="simulated", prompt_token_ids=prompt, sampling=sampling, **fields)


def serve(engine: Engine, *requests: Request) -> dict[str, list[SequenceOutput]]:
    outputs: dict[str, list[SequenceOutput]] = {request.id: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        for output in engine.step().outputs:
            outputs[output.request_id].append(output)
    return outputs


def check(request: Request, outputs: list[SequenceOutput]) -> None:
    """Every token but the first has its scores, which the simulated model derives from the token alone."""
    pieces = [piece for output in outputs for piece in output.prompt_logprobs]
    assert {output.sample_index for output in outputs if output.prompt_logprobs} <= {0}
    told = [position for piece in pieces for position in range(piece.first, piece.first + len(piece))]
    prompt = request.prompt_token_ids
    assert told == list(range(1, len(prompt)))
    rivals = request.sampling.prompt_logprobs
    for token, (logprob, rank, top) in zip(prompt[1:], (t for piece in pieces for t in piece.tokens()), strict=True):
        assert (logprob, rank) == (pytest.approx(-1 - token / 1000), 3)
        assert [token_id for token_id, _ in top] == [(token + i) % 1000 for i in range(1, (rivals or 0) + 1)]


def test_packing_keeps_everything() -> None:
    tokens = [(-0.5, 1, [(7, -0.5), (9, -1.25)]), (-3.0, 40, [(1, -0.25), (2, -2.0)])]
    packed = PromptLogprobs.pack(5, tokens)
    assert (packed.first, len(packed), list(packed.tokens())) == (5, 2, tokens)
    assert packed.num_bytes == sum(map(len, (packed.logprobs, packed.ranks, packed.rival_ids, packed.rival_logprobs)))


@pytest.mark.parametrize(
    ("first_row", "end_row", "positions"),
    [(0, 4, [1, 2, 3, 4]), (4, 10, [5, 6, 7, 8, 9]), (9, 10, []), (10, 11, []), (8, 9, [9])],
)
def test_each_row_tells_of_the_next_prompt_token(first_row: int, end_row: int, positions: list[int]) -> None:
    assert list(prompt_positions(10, first_row, end_row)) == positions


def test_a_prompt_in_chunks_beside_others() -> None:
    engine, _ = simulated_engine(token_limit=64, num_blocks=64, strict=True)
    requests = [asking("long", 150), asking("short", 9, rivals=0), asking("one", 1), asking("more", 70, rivals=5)]
    outputs = serve(engine, *requests)
    for request in requests:
        check(request, outputs[request.id])
        assert sum(len(output.token_ids) for output in outputs[request.id]) == 3


def test_nothing_is_lost_or_told_twice_under_preemption() -> None:
    """A pool for two of the four: they throw each other out again and again, half way through prompts too."""
    engine, _ = simulated_engine(("prefix_cache",), token_limit=64, num_blocks=12, strict=True, check_integrity=True)
    requests = [asking(str(i), 60 + 7 * i, output=60) for i in range(4)]
    outputs = serve(engine, *requests)
    assert engine.state.num_preemptions > 2
    for request in requests:
        check(request, outputs[request.id])


def test_what_a_cache_knows_has_to_be_computed_all_the_same() -> None:
    engine, _ = simulated_engine(("prefix_cache",), token_limit=64, num_blocks=64, strict=True)
    for name in ("first", "second"):
        request = asking(name, 100)
        outputs = serve(engine, request)
        check(request, outputs[name])
        assert outputs[name][-1].num_cached_tokens == 0
    prompt = asking("plain", 100).prompt_token_ids
    plain = Request(id="plain", model="simulated", prompt_token_ids=prompt, sampling=SamplingParams(max_tokens=1))
    assert serve(engine, plain)["plain"][-1].num_cached_tokens == 96


def test_samples_share_one_telling() -> None:
    engine, _ = simulated_engine(("prefix_cache",), token_limit=64, num_blocks=64, strict=True)
    request = asking("r", 100, n=3)
    check(request, serve(engine, request)["r"])


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("length", [1, 5, 200])
def test_a_prompt_alone(samples: int, length: int) -> None:
    """No tokens wanted: the prompt is computed, nothing is generated, and predictions learn nothing from it."""
    engine, _ = simulated_engine(token_limit=64, num_blocks=64, strict=True, check_integrity=True)
    request = asking("r", length, output=0, n=samples)
    outputs = serve(engine, request)["r"]
    check(request, outputs)
    assert [output.token_ids for output in outputs] == [[]] * len(outputs)
    assert [output.finish_reason for output in outputs if output.finish_reason] == ["length"] * samples
    assert engine.state.mean_output_tokens == 0


def test_a_prompt_alone_may_fill_the_context() -> None:
    engine, _ = simulated_engine(token_limit=64, num_blocks=4, strict=True)
    check(asking("r", 64, output=0), serve(engine, asking("r", 64, output=0))["r"])
    engine.submit(asking("longer", 65, output=0))
    engine.submit(asking("speaking", 64, output=1))
    assert [verdict.reason for verdict in engine.step().rejected] == ["context_length_exceeded"] * 2


@given(
    st.lists(
        st.tuples(st.integers(1, 90), st.integers(0, 40), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=6
    ),
    st.sampled_from(["stall_free", "orca", "static_batch:batch_size=3", "prefill_first"]),
)
def test_every_mixture_under_every_planner(shapes: list[tuple[int, int, int, int]], planner: str) -> None:
    engine, _ = simulated_engine(
        (planner, "prefix_cache"), token_limit=48, sequence_limit=8, num_blocks=24, check_integrity=True
    )
    requests = [
        asking(str(i), length, output=output, rivals=rivals, n=n)
        for i, (length, output, rivals, n) in enumerate(shapes)
    ]
    outputs = serve(engine, *requests)
    for request in requests:
        check(request, outputs[request.id])
        for sample in range(request.n):
            tokens = [t for o in outputs[request.id] if o.sample_index == sample for t in o.token_ids]
            assert len(tokens) == request.sampling.max_tokens
