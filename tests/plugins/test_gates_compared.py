"""What gates give to those who ride and what they cost, by the mix of the work: what README.md says of them."""

from __future__ import annotations

from itertools import islice

import pytest

from core_engine.lab.simulate import simulate
from core_engine.lab.simulated import SimulatedModel
from core_engine.lab.workloads import at_once, requests, uniform_lengths
from tests.plugins.runs import Run

SOURCE = {"prompt_tokens": (32, 512), "output_tokens": (1, 128)}  # Orca's: prompts are most of the work
LONG_ANSWERS = {"prompt_tokens": (32, 128), "output_tokens": (64, 256)}
LIMITS = {"sequence_limit": 64, "token_limit": 512, "num_blocks": 4000, "check_integrity": False}


def seconds_and_pace(workload: dict[str, tuple[int, int]], *gates: str) -> tuple[float, float]:
    """Of 48 requests at once: seconds until the last ends, and the slowest's seconds per output token."""
    run = Run(*gates, model=SimulatedModel(verify=False), **LIMITS)
    wanted = islice(requests(uniform_lengths(0, **workload), seed=0, vocab_size=900), 48)
    outcomes = simulate(run.engine, run.clock, at_once(wanted)).outcomes.values()
    paces = [o.decode_seconds / (o.num_output_tokens - 1) for o in outcomes if o.num_output_tokens > 8]
    return max(o.total_seconds for o in outcomes), max(paces)


@pytest.mark.parametrize(
    ("workload", "gate", "least_cost", "most_cost"),
    [
        (SOURCE, "prefill_share", 1.7, 2.5),
        (LONG_ANSWERS, "prefill_share", 1.0, 1.4),
        (SOURCE, "stretch", 1.0, 1.15),
        (LONG_ANSWERS, "stretch", 1.0, 1.15),
    ],
)
def test_a_gate_quickens_who_rides_and_costs_throughput(
    workload: dict[str, tuple[int, int]], gate: str, least_cost: float, most_cost: float
) -> None:
    seconds, pace = seconds_and_pace(workload)
    gated_seconds, gated_pace = seconds_and_pace(workload, gate)
    assert gated_pace < pace
    assert least_cost <= gated_seconds / seconds <= most_cost
