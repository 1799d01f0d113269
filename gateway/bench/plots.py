"""Figures of measurements as pictures, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def plot_capacity(figures: dict[str, Any], file: Path) -> None:
    """Capacity of each system, and the ratio of the best two, against the factor of the bound; a row a percentile."""
    for table, rows in figures["tables"].items():
        percentiles = list(dict.fromkeys(row["percentile"] for row in rows))
        figure = Figure(figsize=(11, 4 * len(percentiles)), layout="constrained")
        figure.suptitle(f"{figures['model']}, {figures['dtype']}, {table.replace('_', ' ')}")
        grid = figure.subplots(len(percentiles), 2, squeeze=False)
        for (rates, ratios), percent in zip(grid, percentiles, strict=True):
            chosen = [row for row in rows if row["percentile"] == percent]
            factors = [row["factor"] for row in chosen]
            for name in chosen[0]["requests_per_second"]:
                rates.plot(factors, [row["requests_per_second"][name] for row in chosen], marker="o", label=name)
            rates.set_yscale("log")
            _label(rates, factors, percent, "requests/s")
            ratios.plot(factors, [row["ratio"] for row in chosen], marker="o", label="measured")
            ratios.plot(factors, [row["simulated_ratio"] for row in chosen], "--", marker="o", label="simulated")
            _label(ratios, factors, percent, "times the best static batching")
        first = table == next(iter(figures["tables"]))
        figure.savefig(file if first else file.with_stem(f"{file.stem}-{table}"))


def plot_iteration(figures: dict[str, Any], directory: Path) -> None:
    """iteration-running.svg and iteration-context.svg: time and memory of an iteration against both."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, points, key, label in (
        ("iteration-running", figures["by_running"], "running", "running sequences"),
        ("iteration-context", figures["by_context"], "context_tokens", "tokens of context"),
    ):
        figure = Figure(figsize=(10, 4), layout="constrained")
        figure.suptitle(f"{figures['model']}, {figures['dtype']}")
        seconds, memory = figure.subplots(1, 2)
        amounts = [point[key] for point in points]
        seconds.loglog(amounts, [1e3 * point["seconds"] for point in points], marker="o", label="an iteration")
        seconds.set(xlabel=label, ylabel="ms")
        memory.loglog(amounts, [point["kv_bytes"] / 2**20 for point in points], marker="o", label="keys and values")
        memory.axhline(figures["weight_bytes"] / 2**20, linestyle="--", label="weights")
        memory.set(xlabel=label, ylabel="MiB")
        for axes in (seconds, memory):
            axes.grid(visible=True, alpha=0.3)
            axes.legend()
        figure.savefig(directory / f"{name}.svg")


def _label(axes: Axes, factors: list[float], percent: float, unit: str) -> None:
    axes.set(xlabel=f"P{percent:g} normalised latency within so many times the unloaded", ylabel=unit, xscale="log")
    axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
    axes.set_xticks([], minor=True)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
