"""Capacity at an objective: iteration-level scheduling against static batching, measured and simulated.

In the simulation an iteration takes as long as the linear layers by themselves: what a scheduler and an attention
without cost would reach. It also says which batch size suits each kind of static batching best, and at which
rates the model is worth being asked.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from core_engine.lab.capacity import Curve, Objective, search, spread, spread_further
from gateway.bench.capacity_runs import Runs, TimeOver

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
_ROUGH, _CLOSE = 1.3, 1.1  # ratios of the brackets, at which a search is over
_BOUNDS = list(product(PERCENTS, FACTORS))
_OF_ALL_OUTPUTS = [Objective(*bound) for bound in _BOUNDS]
_OBJECTIVES = [Objective(*bound, least) for bound, least in product(_BOUNDS, TABLES.values())]
_HANDED_OUT_EARLY = [Objective(*bound, least, as_computed=True) for bound, least in product(_BOUNDS, TABLES.values())]

Curves = dict[str, Curve]


def capacity(
    runs: Runs,
    *,
    policies: tuple[str, ...],
    batch_sizes: Sequence[int],
    num_rates: int,
    every_kind: bool,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Simulate all systems, and measure `policies` and the kind of static batching that does best in simulation.

    `batch_sizes` are those of static batching: each kind gets the one that does best over all bounds in simulation.
    Measured is at saturation and at `num_rates` rates, with `every_kind` for each kind. What there is no time for
    is missing from the figures.
    """
    searched, systems = _simulate(runs, policies, batch_sizes, progress)
    best = max(STATIC, key=lambda name: _size(searched[name]))
    wanted = [ITERATION_LEVEL, best, *(name for name in STATIC if every_kind and name != best)]
    pairs = _measure(runs, {name: systems[name] for name in wanted}, searched, num_rates)
    saturated = {name: pair.measured.saturated_rate for name, pair in pairs.items()}
    return {
        "workload": "capacity",
        "model": runs.model.name,
        "dtype": runs.model.dtype,
        "requests": runs.num_requests,
        "complete": pairs.keys() == set(wanted),
        "systems": {name: " ".join(system) or "default policies" for name, system in systems.items()},
        "rates_measured": {name: sorted(filter(None, pair.measured.points)) for name, pair in pairs.items()},
        "saturated_requests_per_second": {
            "measured": saturated,
            "simulated": {name: curve.saturated_rate for name, curve in searched.items()},
        },
        "tables": {
            table: [_row(Objective(percent, factor, least), pairs, searched) for percent, factor in _BOUNDS]
            for table, least in TABLES.items()
        },
        "foreign_cores": runs.kept.foreign_cores,
    }


def _simulate(
    runs: Runs, policies: tuple[str, ...], batch_sizes: Sequence[int], progress: Callable[[str], None]
) -> tuple[Curves, dict[str, tuple[str, ...]]]:
    """Curves and policies of all systems, of each kind of static batching with the batch size of most capacity."""
    systems = {ITERATION_LEVEL: policies}
    progress(f"simulating {ITERATION_LEVEL}")
    curves = {ITERATION_LEVEL: _curve(runs, policies)}
    for name, options in STATIC.items():
        progress(f"simulating {name}, batches of {', '.join(map(str, batch_sizes))}")
        tried = {size: (f"static_batch:batch_size={size}{options}",) for size in batch_sizes}
        found = {size: _curve(runs, system) for size, system in tried.items()}
        best = max(found, key=lambda size: _size(found[size]))
        curves[name], systems[name] = found[best], tried[best]
    search(curves, [*_OBJECTIVES, *_HANDED_OUT_EARLY], tolerance=_CLOSE)
    return curves, systems


def _curve(runs: Runs, policies: tuple[str, ...]) -> Curve:
    curve = Curve(partial(runs.simulated, policies), runs.alone_simulated())
    search({"": curve}, _OF_ALL_OUTPUTS, tolerance=_ROUGH)
    return curve


def _measure(runs: Runs, systems: dict[str, tuple[str, ...]], simulated: Curves, num_rates: int) -> dict[str, _Pair]:
    """Pairs of the systems for which there was time, alternating between the first two, then one after the other."""
    complete: dict[str, _Pair] = {}
    names = list(systems)
    with contextlib.suppress(TimeOver):
        alone = runs.alone_measured()
        for together in (names[:2], *([name] for name in names[2:])):
            pairs = {
                name: _Pair(
                    measured=Curve(partial(runs.measured, name, systems[name]), alone),
                    simulated=Curve(partial(runs.simulated, systems[name]), runs.alone_simulated()),
                )
                for name in together
            }
            parts = {name: spread(simulated[name], _OBJECTIVES, num_rates) for name in together}
            for place, name in product(range(num_rates), together):
                pairs[name].measure(parts[name][place])
            for name in together:
                pairs[name].measure_down()
                complete[name] = pairs[name]
    return complete


class _Pair(NamedTuple):
    """A system on the model and in simulation, at the same rates, as parts of those at saturation, and at no others.

    Static batching is a matter of chance, in which who meets whom follows from the rate: only where it is asked
    at the same rates, and capacities are read between the same rates, do model and simulation compare.
    """

    measured: Curve
    simulated: Curve

    def measure(self, part: float) -> None:
        """At that part of the rate at saturation."""
        for curve in self:
            curve.measure(part * curve.saturated_rate)

    def measure_down(self) -> None:
        """Go down to rates at which every bound is met."""
        for curve in self:
            while (part := spread_further(curve, [*_OBJECTIVES, *_HANDED_OUT_EARLY])) is not None:
                self.measure(part)


def _size(curve: Curve) -> float:
    """Capacities under all bounds, multiplied."""
    return math.prod(_known(curve, bound) for bound in _OF_ALL_OUTPUTS)


def _known(curve: Curve, bound: Objective) -> float:
    """The capacity after a search."""
    capacity = curve.capacity(bound)
    assert capacity is not None, "the search goes on until some rate met the bound"
    return capacity


def _row(bound: Objective, pairs: dict[str, _Pair], searched: Curves) -> dict[str, Any]:
    """Capacities under one bound, and the ratio to the best kind of static batching; null where not measured."""
    best_searched = max(STATIC, key=lambda name: _known(searched[name], bound))
    row: dict[str, Any] = {
        "percentile": bound.percent,
        "factor": bound.factor,
        "limit_seconds": None,
        "requests_per_second": {name: pair.measured.capacity(bound) for name, pair in pairs.items()},
        "brackets": {name: list(pair.measured.bracket(bound)) for name, pair in pairs.items()},
        "best_static": None,
        "ratio": None,
        "terms": None,
        "simulated_ratio": None,
        "simulated_terms": None,
        "share_of_simulated": None,
        "searched": {"requests_per_second": {name: curve.capacity(bound) for name, curve in searched.items()}}
        | {"best_static": best_searched}
        | _compared(bound, searched[ITERATION_LEVEL], searched[best_searched]),
    }
    if rivals := pairs.keys() & STATIC.keys():
        free = pairs[ITERATION_LEVEL]
        best = max(rivals, key=lambda name: _known(pairs[name].measured, bound))
        compared = _compared(bound, free.measured, pairs[best].measured)
        simulated = _compared(bound, free.simulated, pairs[best].simulated)
        row |= compared | {f"simulated_{key}": value for key, value in simulated.items()}
        row["limit_seconds"] = free.measured.limit(bound)
        row["best_static"] = best
        row["share_of_simulated"] = compared["ratio"] / simulated["ratio"]
    return row


def _compared(bound: Objective, iteration_level: Curve, static: Curve) -> dict[str, Any]:
    split = terms(bound, iteration_level, static)
    return {"ratio": math.prod(split.values()), "terms": split}


def terms(bound: Objective, iteration_level: Curve, static: Curve) -> dict[str, float]:
    """The ratio of capacities as a product of what static batching loses. Every capacity must be known.

    `synchronisation`: by answers that wait for the longest of their batch, which is what it would gain if each
    were handed out when it is computed. `utilisation`: by seats left empty, the ratio of the rates at saturation.
    `waiting`: all else, which is the wait of newcomers for the end of a batch.
    """
    early = Objective(bound.percent, bound.factor, bound.min_output_tokens, as_computed=True)
    free, held, prompt = _known(iteration_level, bound), _known(static, bound), _known(static, early)
    utilisation = iteration_level.saturated_rate / static.saturated_rate
    return {
        "waiting": free / prompt / utilisation,
        "synchronisation": prompt / held,
        "utilisation": utilisation,
    }
