"""Churn at a full pool for very long: nothing leaks, nothing becomes slower."""

from __future__ import annotations

import gc
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from core_engine.engine import Engine
from core_engine.executor import Batch, BatchResult
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine

CHECKPOINTS = 6


class Churn:
    """An engine kept full: requests of all sizes come as fast as they go, a few are cancelled at any stage."""

    def __init__(self, policies: list[str], check_every: int) -> None:
        self.engine, _ = simulated_engine(
            policies, num_blocks=48, block_size=8, sequence_limit=32, token_limit=96, check_integrity=False
        )
        self._executor = self.engine._executor
        self.engine._executor = self
        self.check_every = check_every
        self.blocks_used = 0
        self.iterations = 0
        self.num_submitted = 0
        self.num_ended = 0
        self._draw = random.Random(0)
        self._alive: list[str] = []

    def run(self, iterations: int) -> None:
        engine, draw = self.engine, self._draw
        for _ in range(iterations):
            for _ in range(4 - engine.state.num_waiting):
                engine.submit(self._next())
            if draw.random() < 0.02 and self._alive:
                engine.cancel(draw.choice(self._alive))
            output = engine.step()
            assert not output.rejected
            for outcome in output.finished:
                assert outcome.finish_reason != "error"
                self._alive.remove(outcome.request_id)
                self.num_ended += 1
            self.iterations += 1
            if self.iterations % self.check_every == 0:
                engine.state.check_integrity()

    def submit(self, batch: Batch) -> object:
        """Stand before the executor, to see the pool as it is while the model runs."""
        self.blocks_used += self.engine.state.num_blocks - self.engine.state.num_free_blocks
        return self._executor.submit(batch)

    def collect(self, handle: object) -> BatchResult:
        return self._executor.collect(handle)

    def _next(self) -> Request:
        draw = self._draw
        self.num_submitted += 1
        request = Request(
            id=f"r{self.num_submitted}",
            model="simulated",
            prompt_token_ids=[draw.randrange(1000) for _ in range(draw.randint(1, 50))],
            sampling=SamplingParams(max_tokens=draw.randint(1, 40), seed=draw.randrange(1 << 32)),
            n=draw.choice([1, 1, 1, 2]),
            tenant=f"tenant{draw.randrange(5)}",
            class_name=draw.choice(["standard", "batch"]),
        )
        self._alive.append(request.id)
        return request


def reachable(engine: Engine) -> Iterator[Any]:
    """Every object that the engine keeps alive, code and types aside."""
    code = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
    seen, found = {id(engine)}, [engine]
    while found:
        current = found.pop()
        yield current
        for referent in gc.get_referents(current):
            if id(referent) not in seen and not isinstance(referent, code):
                seen.add(id(referent))
                found.append(referent)


def kilobytes(engine: Engine) -> float:
    return sum(sys.getsizeof(thing) for thing in reachable(engine)) / 1024


def calls(churn: Churn, iterations: int) -> float:
    """Function calls an iteration, C functions included: a measure of effort that no other process disturbs."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    churn.run(iterations)
    sys.setprofile(None)
    return count / iterations


def soak(churn: Churn, iterations: int) -> None:
    sizes, efforts = [], []
    for _ in range(CHECKPOINTS):
        churn.run(iterations // CHECKPOINTS)
        efforts.append(calls(churn, 200))
        sizes.append(kilobytes(churn.engine))
    assert churn.blocks_used / churn.iterations >= 0.95 * churn.engine.state.num_blocks
    assert churn.num_ended > iterations / 20
    assert churn.engine.state.num_preemptions > iterations / 100
    half = CHECKPOINTS // 2
    assert sum(sizes[half:]) < 1.25 * sum(sizes[:half])
    assert sum(efforts[half:]) < 1.1 * sum(efforts[:half])


POLICIES = [["paged:headroom=0"], ["prefix_cache", "paged:headroom=0"]]


@pytest.mark.slow
@pytest.mark.parametrize("policies", POLICIES)
def test_five_thousand_iterations_of_churn(policies: list[str]) -> None:
    soak(Churn(policies, check_every=10), 5_000)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policies", POLICIES)
def test_two_hundred_thousand_iterations_of_churn(policies: list[str]) -> None:
    soak(Churn(policies, check_every=100), 200_000)
