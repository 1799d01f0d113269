"""The standard workloads, their reference schedule, and a run of them."""

from __future__ import annotations

import random

import pytest

from core_engine import EngineUnavailable
from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import ModelSpec
from core_engine.lab.measured import run_at_once
from core_engine.lab.schedule import reference_schedule
from core_engine.lab.simulated import SimulatedExecutor
from core_engine.lab.standard import STANDARD, standard_lengths, standard_requests


def test_the_offline_lengths_are_those_that_other_engines_are_driven_with() -> None:
    draw = random.Random(0)
    expected = [(draw.randint(32, 512), draw.randint(1, 128)) for _ in range(64)]
    assert [(each.prompt_tokens, each.output_tokens) for each in standard_lengths("offline")] == expected


@pytest.mark.parametrize("name", STANDARD)
def test_requests_are_the_same_every_time_but_for_their_names(name: str) -> None:
    first = standard_requests(name, model="m", vocab_size=1000, prefix="a")
    second = standard_requests(name, model="m", vocab_size=1000, prefix="b")
    assert [each.prompt_token_ids for each in first] == [each.prompt_token_ids for each in second]
    assert not {each.id for each in first} & {each.id for each in second}


@pytest.mark.parametrize("name", STANDARD)
def test_the_reference_schedule_computes_every_token_once_within_its_limits(name: str) -> None:
    requests = standard_requests(name, model="m", vocab_size=1000)
    schedule = reference_schedule(requests, 1000)
    outputs = [request.sampling.max_tokens or 0 for request in requests]
    prompts = [len(request.prompt_token_ids) for request in requests]
    assert sum(rows for rows, _ in schedule) == sum(prompts) + sum(outputs) - len(requests)
    assert sum(heads for _, heads in schedule) == sum(outputs)
    assert all(rows <= 512 and heads <= 64 for rows, heads in schedule)


def test_a_run_tells_what_was_computed_and_when_each_ended() -> None:
    engine, clock = _engine(num_blocks=4096)
    requests = standard_requests("offline", model="simulated", vocab_size=1000, num_requests=8)
    heard: list[int] = []
    run = run_at_once(engine, requests, clock=clock, progress=heard.append)
    assert run.prompt_tokens == sum(len(request.prompt_token_ids) for request in requests)
    assert run.output_tokens == sum(request.sampling.max_tokens or 0 for request in requests)
    assert {outcome.request_id for outcome in run.outcomes} == {request.id for request in requests}
    assert sum(heard) == len(requests)
    assert run.executing_seconds == pytest.approx(run.wall_seconds)


def test_a_run_that_the_engine_refuses_says_which_request_and_why() -> None:
    engine, clock = _engine(num_blocks=2)
    requests = standard_requests("offline", model="simulated", vocab_size=1000, num_requests=1)
    with pytest.raises(EngineUnavailable, match="request-0 was refused"):
        run_at_once(engine, requests, clock=clock)


def _engine(num_blocks: int) -> tuple[Engine, VirtualClock]:
    clock = VirtualClock()
    spec = ModelSpec(
        name="simulated",
        architecture="simulated",
        dtype="float32",
        device="simulated",
        vocab_size=1000,
        max_model_len=4096,
        num_blocks=num_blocks,
        block_size=16,
        kv_bytes_per_token=1,
    )
    return Engine(EngineConfig(block_size=16, seed=0), SimulatedExecutor(spec, clock), clock=clock), clock
