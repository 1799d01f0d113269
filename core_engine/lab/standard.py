"""The standard workloads, by which engines are compared: same lengths, same order, for everybody."""

from __future__ import annotations

from itertools import islice, repeat

from core_engine.lab.workloads import Lengths, requests, uniform_lengths
from core_engine.request import Request

# name -> what a person reads of it
STANDARD = {
    "offline": "64 requests at once, prompts U(32, 512), outputs U(1, 128), as in the Orca paper (OSDI '22)",
    "decode": "32 requests at once, prompt 32, output 256",
    "single": "one request, prompt 128, output 128",
}
_SEED = 0


def standard_lengths(name: str, num_requests: int | None = None) -> list[Lengths]:
    """Lengths of a workload of STANDARD, or of its first `num_requests`. Raises KeyError for another name."""
    usual = {"offline": 64, "decode": 32, "single": 1}[name]
    endless = {
        "offline": uniform_lengths(_SEED),
        "decode": repeat(Lengths(32, 256)),
        "single": repeat(Lengths(128, 128)),
    }[name]
    return list(islice(endless, num_requests or usual))


def standard_requests(
    name: str, *, model: str, vocab_size: int, num_requests: int | None = None, prefix: str = "request"
) -> list[Request]:
    """The requests of a workload: greedy, ends of sequence ignored, random tokens that are the same every time."""
    lengths = standard_lengths(name, num_requests)
    return list(requests(lengths, seed=_SEED, vocab_size=vocab_size, model=model, prefix=prefix))
