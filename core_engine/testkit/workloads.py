"""Workloads of the conformance kit: small structs that are drawn from a seed, shrunk, and kept as JSON."""

from __future__ import annotations

import itertools
import random

import msgspec

from core_engine.classes import class_of
from core_engine.lab.workloads import uniform_lengths
from core_engine.request import Request, SamplingParams
from core_engine.testkit.engine import VOCAB_SIZE

_SWAPPED = 0.25  # share of random workloads in which the policy comes and goes
_END = VOCAB_SIZE - 1  # the token that ends a sequence is left out of prompts


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a small engine."""

    num_blocks: int = 64
    block_size: int = 16
    token_limit: int = 64
    sequence_limit: int = 8
    max_wait_iterations: int = 4096


class Wish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, handed in before iteration `at`; the class of service follows from the priority."""

    at: int = 1
    prompt_tokens: int = 1
    output_tokens: int = 1
    common_tokens: int = 0  # of the prompt, from its start: the same in every request
    n: int = 1
    tenant: str = "anonymous"
    priority: int = 0
    cancel_at: int | None = None  # iteration

    def request(self, name: str, number: int) -> Request:
        """The request, whose tokens follow from its number; it generates exactly `output_tokens` for each sample."""
        common = min(self.common_tokens, self.prompt_tokens)
        token_ids = [
            i * 31 % _END if i < common else (i * 31 + number * 7919) % _END for i in range(self.prompt_tokens)
        ]
        return Request(
            id=name,
            model="simulated",
            prompt_token_ids=token_ids,
            sampling=SamplingParams(temperature=0, max_tokens=self.output_tokens, ignore_eos=True),
            n=self.n,
            tenant=self.tenant,
            class_name=class_of(self.priority),
            priority=self.priority,
        )


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """Endless arrivals: so many clients, each of which asks again when it has its answer or has lost its patience."""

    clients: int
    wish: Wish
    patience_iterations: int = 16


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Wishes, named r0, r1, ..., and perhaps a flood around them; it ends when the wishes are answered.

    `iterations`: or after so many, whatever is answered by then. `swaps`: iterations before which the policy is
    put in force or out of it in turn; without any it is in force from the start.
    """

    machine: Machine = Machine()
    wishes: tuple[Wish, ...] = ()
    flood: Flood | None = None
    iterations: int | None = None
    swaps: tuple[int, ...] = ()

    @property
    def last_event(self) -> int:
        """The iteration before which something is handed in or cancelled for the last time."""
        return max((max(wish.at, wish.cancel_at or 0) for wish in self.wishes), default=0)

    @property
    def most_iterations(self) -> int:
        """More than any policy needs, since the engine makes its oldest sequence move every few iterations."""
        if self.flood is not None:
            return 4 * self.machine.max_wait_iterations
        return self.last_event + 10 * sum(map(self._iterations_alone, self.wishes)) + 100

    @property
    def iterations_ahead(self) -> int:
        """What those take at most, one after the other, that may stand before a request when the policy turns to it."""
        flood = 0 if self.flood is None else self.flood.clients * self._iterations_alone(self.flood.wish)
        return flood + sum(map(self._iterations_alone, self.wishes))

    def _iterations_alone(self, wish: Wish) -> int:
        chunk = min(self.machine.block_size, self.machine.token_limit)
        return wish.n * (wish.prompt_tokens // chunk + 2 + wish.output_tokens)


def random_workload(seed: int) -> Workload:
    """Up to 8 requests of all kinds on a machine on which each of them fits, not always all at once."""
    draw = random.Random(seed)
    sequence_limit = draw.randint(1, 8)
    machine = Machine(
        num_blocks=draw.choice([4, 8, 16, 64]),
        block_size=draw.choice([8, 12, 16]),
        token_limit=sequence_limit + draw.choice([6, 16, 40, 100]),
        sequence_limit=sequence_limit,
        max_wait_iterations=draw.choice([20, 4096, 4096, 4096]),
    )
    room = machine.num_blocks * machine.block_size
    longest = draw.choice([room // 4, room // 2, room - 16 if room > 32 else room // 2])
    lengths = uniform_lengths(seed, prompt_tokens=(1, min(longest, 300)), output_tokens=(1, min(16, room // 2)))
    common = draw.choice([0, 0, longest // 2])
    num_requests = draw.randint(1, 8)
    wishes, at = [], 1
    for length in itertools.islice(lengths, num_requests):
        at += draw.choice([0, 0, 0, 1, 5, 12])
        wish = Wish(
            at=at,
            prompt_tokens=length.prompt_tokens,
            output_tokens=length.output_tokens,
            common_tokens=common,
            n=draw.choice([1, 1, 1, 1, 2, 3]),
            tenant=draw.choice("abc"),
            priority=draw.choice([-10, -10, 0, 0, 0, 3, 10, 50]),
            cancel_at=at + draw.randint(0, 60) if draw.random() < 0.1 else None,
        )
        wishes.append(wish)
    swaps = tuple(sorted(draw.sample(range(2, 40), 3))) if draw.random() < _SWAPPED else ()
    return Workload(machine=machine, wishes=tuple(wishes), swaps=swaps)


def floods(max_wait_iterations: int) -> dict[str, Workload]:
    """A few requests and an endless flood of others, by what the flood has over them."""
    machine = Machine(sequence_limit=4, token_limit=32, max_wait_iterations=max_wait_iterations)
    small = Machine(num_blocks=12, sequence_limit=4, token_limit=32, max_wait_iterations=max_wait_iterations)
    replace = msgspec.structs.replace
    plain = Wish(prompt_tokens=24, output_tokens=12)

    def flooded(wish: Wish, by: Wish, machine: Machine = machine) -> Workload:
        wishes = tuple(replace(wish, at=at) for at in (30, 32, 34))
        return Workload(machine=machine, wishes=wishes, flood=Flood(clients=8, wish=by))

    return {
        "more of the same": flooded(plain, by=plain),
        "shorter requests": flooded(
            replace(plain, prompt_tokens=100), by=replace(plain, prompt_tokens=4, output_tokens=4)
        ),
        "longer requests": flooded(replace(plain, prompt_tokens=4), by=replace(plain, prompt_tokens=100)),
        "more urgent requests": flooded(replace(plain, priority=10), by=replace(plain, priority=-10)),
        "another tenant": flooded(replace(plain, tenant="single"), by=replace(plain, tenant="crowd")),
        "a small pool": flooded(replace(plain, prompt_tokens=120), by=replace(plain, output_tokens=8), machine=small),
    }
