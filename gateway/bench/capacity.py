"""Capacity at an objective: iteration-level scheduling against static batching, measured and simulated.

In the simulation an iteration takes as long as the linear layers by themselves: what a scheduler and an attention
without cost would reach. It also says which batch size suits each kind of static batching best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from core_engine import EngineConfig
from core_engine.lab.arriving import Answered
from core_engine.lab.capacity import Curve, Objective, search
from core_engine.lab.rates import Rates

ITERATION_LEVEL = "iteration_level"  # the default policies
# Name -> options of the policy static_batch. `reserve` only matters where memory is short.
STATIC = {
    "static": "",
    "static_finished_rows": ",keep_finished_rows=true",
    "static_padded": ",pad=true",
    "static_padded_finished_rows": ",keep_finished_rows=true,pad=true",
}
FACTORS = (2.0, 3.0, 5.0, 10.0)
PERCENTS = (99.0, 50.0)
TABLES = {"all_outputs": 1, "outputs_of_8_up": 8}  # least output tokens of the answers that count
BATCH_SIZES = (8, 16, 32, 64)
_ROUGH, _CLOSE, _CLOSEST = 1.3, 1.1, 1.05  # ratios of the brackets, at which a search is over
_BOUNDS = list(product(PERCENTS, FACTORS))
_OF_ALL_OUTPUTS = [Objective(*bound) for bound in _BOUNDS]
_OBJECTIVES = [Objective(*bound, least) for bound, least in product(_BOUNDS, TABLES.values())]

Curves = dict[str, Curve]


def capacity(
    config: EngineConfig,
    *,
    num_requests: int,
    batch_sizes: Sequence[int],
    minutes: float,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Search for about so many minutes; `brackets` in the figures say how far it came.

    Measured are the default policies and the kind of static batching that does best in simulation, then the other
    kinds if there is time. `batch_sizes` are those of static batching: each kind gets the one that does best over
    all bounds in simulation.
    """
    began = time.monotonic()
    progress("the model and its linear layers")
    rates = Rates(config, num_requests)
    simulated, best_sizes = _simulate(rates, batch_sizes, progress)
    measured = _measure(rates, simulated, best_sizes, progress, lambda: time.monotonic() - began > 60 * minutes)
    return {
        "workload": "capacity",
        "model": rates.spec.name,
        "dtype": rates.spec.dtype,
        "requests": num_requests,
        "batch_sizes": best_sizes,
        "rates_measured": {name: len(curve.points) for name, curve in measured.items()},
        "saturated_requests_per_second": {
            "measured": {name: curve.saturated_rate for name, curve in measured.items()},
            "simulated": {name: curve.saturated_rate for name, curve in simulated.items()},
        },
        "tables": {
            table: [_row(Objective(percent, factor, least), measured, simulated) for percent, factor in _BOUNDS]
            for table, least in TABLES.items()
        },
    }


def _simulate(
    rates: Rates, batch_sizes: Sequence[int], progress: Callable[[str], None]
) -> tuple[Curves, dict[str, int]]:
    """Curves of all systems, of each kind of static batching with the batch size of most capacity."""
    alone = rates.alone_simulated()

    def curve(policies: tuple[str, ...]) -> Curve:
        found = Curve(partial(rates.simulated, policies, alone=alone), alone)
        search({"": found}, _OF_ALL_OUTPUTS, tolerance=_ROUGH)
        return found

    progress(f"simulating {ITERATION_LEVEL}")
    curves, best_sizes = {ITERATION_LEVEL: curve(())}, {}
    for name in STATIC:
        progress(f"simulating {name}, batches of {', '.join(map(str, batch_sizes))}")
        tried = {size: curve(_policies(name, size)) for size in batch_sizes}
        best = max(tried, key=lambda size: _size(tried[size]))
        curves[name], best_sizes[name] = tried[best], best
    search(curves, _OBJECTIVES, tolerance=_CLOSE)
    return curves, best_sizes


def _measure(
    rates: Rates,
    simulated: Curves,
    batch_sizes: dict[str, int],
    progress: Callable[[str], None],
    is_over: Callable[[], bool],
) -> Curves:
    progress("each request by itself")
    alone = rates.alone_measured()

    def run(name: str, policies: tuple[str, ...], rate: float) -> list[Answered]:
        progress(f"{name}: " + ("all at once" if math.isinf(rate) else f"{rate:.3g} requests/s"))
        return rates.measured(policies, rate, alone)

    policies = {ITERATION_LEVEL: ()} | {name: _policies(name, size) for name, size in batch_sizes.items()}
    curves: Curves = {}

    def guess(name: str, bound: Objective) -> float:
        speed = curves[name].saturated_rate / simulated[name].saturated_rate
        return _known(simulated[name], bound) * speed

    def refine(tolerance: float, *names: str) -> None:
        for name in names:
            if name not in curves:
                curves[name] = Curve(partial(run, name, policies[name]), alone)
        chosen = {name: curves[name] for name in names}
        search(chosen, _OBJECTIVES, tolerance=tolerance, guess=guess, is_over=is_over)

    # The kinds of static batching that the simulation finds worse come only when the others are known.
    refine(_CLOSE, ITERATION_LEVEL, max(STATIC, key=lambda name: _size(simulated[name])))
    for name in STATIC:
        if name not in curves and not is_over():
            refine(_CLOSE, name)
            if is_over():
                del curves[name]  # brackets that are open still say nothing
    refine(_CLOSEST, *curves)
    return curves


def _size(curve: Curve) -> float:
    """Capacities under all bounds, multiplied."""
    return math.prod(_known(curve, bound) for bound in _OF_ALL_OUTPUTS)


def _known(curve: Curve, bound: Objective) -> float:
    """The capacity after a search that was not cut short."""
    capacity = curve.capacity(bound)
    assert capacity is not None, "the search goes on until some rate met the bound"
    return capacity


def _policies(name: str, batch_size: int) -> tuple[str, ...]:
    return (f"static_batch:batch_size={batch_size}{STATIC[name]}",)


def _row(bound: Objective, measured: Curves, simulated: Curves) -> dict[str, Any]:
    """Capacities under one bound, and the ratio to the best kind of static batching; null where time was too short."""
    capacities = {name: curve.capacity(bound) for name, curve in measured.items()}
    best = max(capacities.keys() - {ITERATION_LEVEL}, key=lambda name: capacities[name] or 0.0)
    best_simulated = max(STATIC, key=lambda name: _known(simulated[name], bound))
    split = terms(bound, measured[ITERATION_LEVEL], measured[best])
    ideal = terms(bound, simulated[ITERATION_LEVEL], simulated[best_simulated])
    assert ideal is not None, "the simulation is never cut short"
    return {
        "percentile": bound.percent,
        "factor": bound.factor,
        "limit_seconds": measured[ITERATION_LEVEL].limit(bound),
        "requests_per_second": capacities,
        "simulated_requests_per_second": {name: curve.capacity(bound) for name, curve in simulated.items()},
        "brackets": {name: list(curve.bracket(bound)) for name, curve in measured.items()},
        "best_static": best,
        "ratio": None if split is None else math.prod(split.values()),
        "terms": split,
        "simulated_ratio": math.prod(ideal.values()),
        "simulated_terms": ideal,
        "share_of_simulated": None if split is None else math.prod(split.values()) / math.prod(ideal.values()),
    }


def terms(bound: Objective, iteration_level: Curve, static: Curve) -> dict[str, float] | None:
    """The ratio of capacities as a product of what static batching loses; None where a capacity isn't known.

    `synchronisation`: by answers that wait for the longest of their batch, which is what it would gain if each
    were handed out when it is computed. `utilisation`: by seats left empty, the ratio of the rates at saturation.
    `waiting`: all else, which is the wait of newcomers for the end of a batch.
    """
    early = Objective(bound.percent, bound.factor, bound.min_output_tokens, as_computed=True)
    free, held, prompt = iteration_level.capacity(bound), static.capacity(bound), static.capacity(early)
    if free is None or held is None or prompt is None:
        return None
    utilisation = iteration_level.saturated_rate / static.saturated_rate
    return {
        "waiting": free / prompt / utilisation,
        "synchronisation": prompt / held,
        "utilisation": utilisation,
    }
