"""Shrinking: from a workload that fails to a small one that still does, greedily, a change at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from core_engine.testkit.workloads import Flood, Machine, Wish, Workload

_replace = msgspec.structs.replace


def shrink(workload: Workload, fails: Callable[[Workload], bool], max_tries: int = 400) -> Workload:
    """The smallest workload that was found, in up to `max_tries` runs, for which `fails` is still true."""
    tries = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(workload):
            if tries >= max_tries:
                return workload
            tries += 1
            if fails(smaller):
                workload, shrunk = smaller, True
                break
    return workload


def _smaller(workload: Workload) -> Iterator[Workload]:
    """What might be tried next, what takes away most first."""
    wishes = workload.wishes
    size = max(1, len(wishes) // 2)
    while size:
        for start in range(0, len(wishes), size):
            yield _replace(workload, wishes=wishes[:start] + wishes[start + size :])
        size //= 2
    roomy = Machine(max_wait_iterations=workload.machine.max_wait_iterations)
    if workload.machine != roomy:
        yield _replace(workload, machine=roomy)
    if workload.flood is not None:
        yield _replace(workload, flood=None)
        yield from (_replace(workload, flood=flood) for flood in _smaller_floods(workload.flood))
    if workload.swaps:
        yield _replace(workload, swaps=())
        for index, at in enumerate(workload.swaps):
            yield _replace(workload, swaps=workload.swaps[:index])
            others = workload.swaps[:index] + workload.swaps[index + 1 :]
            yield _replace(workload, swaps=others)
            yield from (_replace(workload, swaps=tuple(sorted((*others, less)))) for less in _less(at, 1))
    for index, wish in enumerate(wishes):
        for simpler in _simpler(wish):
            yield _replace(workload, wishes=(*wishes[:index], simpler, *wishes[index + 1 :]))


def _smaller_floods(flood: Flood) -> Iterator[Flood]:
    for clients in _less(flood.clients, 1):
        yield _replace(flood, clients=clients)
    for wish in _simpler(flood.wish):
        yield _replace(flood, wish=wish)


def _simpler(wish: Wish) -> Iterator[Wish]:
    for field, plain in (("cancel_at", None), ("common_tokens", 0), ("tenant", "anonymous"), ("priority", 0)):
        if getattr(wish, field) != plain:
            yield _replace(wish, **{field: plain})
    for field in ("n", "prompt_tokens", "output_tokens", "at"):
        for value in _less(getattr(wish, field), 1):
            yield _replace(wish, **{field: value})


def _less(value: int, least: int) -> Iterator[int]:
    """Smaller numbers, the boldest first."""
    yield from dict.fromkeys(smaller for smaller in (least, value // 2, value - 1) if least <= smaller < value)
