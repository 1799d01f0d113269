"""Shared blocks on the real model: siblings and prompts that begin alike give what they give alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core_engine import Engine, EngineConfig, Request, SamplingParams
from core_engine.loading import load_executor, prepare_model

PROMPT = [(7919 * i) % 30_000 + 100 for i in range(77)]  # two blocks of 32 and a part of the third


@pytest.fixture(scope="module", params=["paged", "prefix_cache"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    config = EngineConfig(
        dtype="float32",
        threads=1,
        probe=False,
        kv_memory_bytes=100 << 20,
        policies=(request.param,),
        strict=True,
        check_integrity=True,
    )
    return Engine(config, load_executor(config, prepare_model(config)))


def texts(engine: Engine, wanted: dict[str, tuple[int, int]]) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    """By name, the greedy tokens of each sample and the cached prompt tokens; of name to (prompt tokens, n)."""
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    found: dict[str, list[list[int]]] = {name: [[] for _ in range(n)] for name, (_, n) in wanted.items()}
    cached: dict[str, int] = {}
    for name, (length, n) in wanted.items():
        engine.submit(Request(id=name, model="smollm2", prompt_token_ids=PROMPT[:length], n=n, sampling=sampling))
    while engine.has_work:
        output = engine.step()
        for piece in output.outputs:
            found[piece.request_id][piece.sample_index] += piece.token_ids
        cached |= {outcome.request_id: outcome.num_cached_tokens for outcome in output.finished}
    return found, cached


@pytest.mark.parametrize("length", [77, 65, 64])
def test_samples_that_share_a_prompt_say_what_one_says_alone(engine: Engine, length: int) -> None:
    alone, _ = texts(engine, {f"alone-{length}": (length, 1)})
    together, _ = texts(engine, {f"together-{length}": (length, 3)})
    (text,) = alone[f"alone-{length}"]
    assert together[f"together-{length}"] == [text] * 3


def test_a_prompt_found_in_the_cache_continues_as_it_did(engine: Engine) -> None:
    first, _ = texts(engine, {"first": (70, 1)})
    again, cached = texts(engine, {"again": (70, 1)})
    assert again["again"] == first["first"]
    remembers = engine.state.pool.remembers
    assert cached["again"] == (64 if remembers else 0)
