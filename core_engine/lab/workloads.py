"""Seeded workloads: which requests arrive, and when. All generators are lazy; most are endless."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import msgspec

from core_engine.request import Request, SamplingParams


class Lengths(msgspec.Struct, frozen=True):
    """Prompt and output length of one request, in tokens."""

    prompt_tokens: int
    output_tokens: int


class Arrival(msgspec.Struct, frozen=True):
    """A request and the moment it arrives."""

    seconds: float
    request: Request


def uniform_lengths(
    seed: int, *, prompt_tokens: tuple[int, int] = (32, 512), output_tokens: tuple[int, int] = (1, 128)
) -> Iterator[Lengths]:
    """Endless lengths, both uniform and inclusive; by default those of the Orca paper (OSDI '22)."""
    draw = random.Random(seed)
    while True:
        yield Lengths(draw.randint(*prompt_tokens), draw.randint(*output_tokens))


def requests(
    lengths: Iterable[Lengths], *, seed: int, vocab_size: int, model: str = "simulated", prefix: str = "request"
) -> Iterator[Request]:
    """One greedy request for each, named `prefix-0`, `prefix-1`, ..., that generates exactly that many tokens."""
    draw = random.Random(seed)
    for index, wanted in enumerate(lengths):
        yield Request(
            id=f"{prefix}-{index}",
            model=model,
            prompt_token_ids=[draw.randrange(vocab_size) for _ in range(wanted.prompt_tokens)],
            sampling=SamplingParams(temperature=0, max_tokens=wanted.output_tokens, ignore_eos=True),
        )


def at_once(wanted: Iterable[Request], seconds: float = 0.0) -> Iterator[Arrival]:
    """All of them at one moment."""
    for request in wanted:
        yield Arrival(seconds, request)


def evenly(wanted: Iterable[Request], interval_seconds: float) -> Iterator[Arrival]:
    """One every `interval_seconds`, the first at once."""
    for index, request in enumerate(wanted):
        yield Arrival(index * interval_seconds, request)


def poisson(wanted: Iterable[Request], requests_per_second: float, seed: int) -> Iterator[Arrival]:
    """Arrivals of a Poisson process of that rate."""
    draw = random.Random(seed)
    seconds = 0.0
    for request in wanted:
        seconds += draw.expovariate(requests_per_second)
        yield Arrival(seconds, request)
