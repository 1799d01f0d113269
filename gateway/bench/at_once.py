"""Figures of a workload that is all there at once: medians, spread, ratios to the floor and to transformers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from core_engine import EngineConfig, Outcome
from core_engine.lab.at_once import AtOnce
from gateway.bench.figures import percentiles, spread


def at_once(
    name: str,
    config: EngineConfig,
    *,
    num_runs: int,
    num_requests: int | None,
    versus_transformers: bool,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Measure `offline`, `decode` or `single`; the ratio of `single` is over the memory floor."""
    progress("the model")
    measurement = AtOnce(name, config, num_requests).measure(
        num_runs, versus_transformers=versus_transformers, progress=progress
    )
    runs = measurement.runs
    walls = [run.wall_seconds for run in runs]
    floor = measurement.memory_floor_seconds if name == "single" else measurement.floor_seconds
    tokens = runs[0].prompt_tokens + runs[0].output_tokens
    figures = {
        "workload": name,
        "model": measurement.info.model,
        "dtype": measurement.info.dtype,
        "quantize": config.quantize,
        "requests": len(runs[0].outcomes),
        "runs": len(runs),
        "wall_seconds": spread(walls),
        "tokens_per_second": spread([tokens / wall for wall in walls]),
        "output_tokens_per_second": spread([runs[0].output_tokens / wall for wall in walls]),
        "floor_seconds": floor,
        "floor_ratio": spread([wall / floor for wall in walls]),
        "shares": measurement.shares,
        "iterations": len(runs[0].stats),
        "outside_model_share": spread([1 - run.executing_seconds / run.wall_seconds for run in runs]),
        "idle_gap_seconds": percentiles([gap for run in runs for gap in run.gaps_seconds]),
        **_latencies([outcome for run in runs for outcome in run.outcomes]),
    }
    if versus_transformers:
        others = measurement.transformers_seconds
        figures["transformers"] = {
            "wall_seconds": spread(others),
            "tokens_per_second": spread([tokens / seconds for seconds in others]),
            "times_faster": statistics.median(others) / statistics.median(walls),
        }
    return figures


def _latencies(outcomes: list[Outcome]) -> dict[str, Any]:
    first = [(outcome.queue_seconds or 0.0) + (outcome.prefill_seconds or 0.0) for outcome in outcomes]
    pace = [
        (outcome.decode_seconds or 0.0) / (outcome.num_output_tokens - 1)
        for outcome in outcomes
        if outcome.num_output_tokens > 1
    ]
    return {
        "time_to_first_token_seconds": percentiles(first),
        "time_per_output_token_seconds": percentiles(pace),
        "normalised_latency_seconds": percentiles(
            [outcome.total_seconds / outcome.num_output_tokens for outcome in outcomes]
        ),
    }
