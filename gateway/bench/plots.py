"""Figures of measurements as pictures, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def plot_capacity(figures: dict[str, Any], file: Path) -> None:
    """Against the factor of the bound: capacities, the ratio of the best two, and its terms; a row a percentile.

    Dashed is the simulation. Each table has a file of its own, the first `file` itself.
    """
    for table, rows in figures["tables"].items():
        percentiles = list(dict.fromkeys(row["percentile"] for row in rows))
        figure = Figure(figsize=(16, 4.5 * len(percentiles)), layout="constrained")
        figure.suptitle(
            f"{figures['model']}, {figures['dtype']}, {figures['requests']} requests, {table.replace('_', ' ')}; "
            "dashed: simulated"
        )
        grid = figure.subplots(len(percentiles), 3, squeeze=False)
        for (rates, ratios, terms), percent in zip(grid, percentiles, strict=True):
            chosen = [row for row in rows if row["percentile"] == percent]
            _draw_rates(rates, chosen)
            _draw_ratios(ratios, chosen)
            _draw_terms(terms, chosen)
            for axes in (rates, ratios, terms):
                _finish(axes, [row["factor"] for row in chosen], percent)
        first = table == next(iter(figures["tables"]))
        figure.savefig(file if first else file.with_stem(f"{file.stem}-{table}"))


def _draw_rates(axes: Axes, rows: list[dict[str, Any]]) -> None:
    factors = [row["factor"] for row in rows]
    for number, name in enumerate(rows[0]["searched"]["requests_per_second"]):
        colour = f"C{number}"
        simulated = [row["searched"]["requests_per_second"][name] for row in rows]
        is_measured = name in rows[0]["requests_per_second"]
        axes.plot(factors, simulated, "--", color=colour, alpha=0.6, label=None if is_measured else name)
        if is_measured:
            measured = [row["requests_per_second"][name] for row in rows]
            axes.plot(factors, measured, marker="o", color=colour, label=name)
    axes.set(yscale="log", ylabel="requests/s")
    _plain(axes)


def _draw_ratios(axes: Axes, rows: list[dict[str, Any]]) -> None:
    factors = [row["factor"] for row in rows]
    axes.plot(factors, [row["searched"]["ratio"] for row in rows], ":", marker=".", label="simulated, searched")
    if rows[0]["ratio"] is not None:
        axes.plot(factors, [row["ratio"] for row in rows], marker="o", label="measured")
        axes.plot(factors, [row["simulated_ratio"] for row in rows], "--", marker="o", label="simulated, same rates")
    axes.set(ylabel="times the best static batching")
    axes.set_ylim(bottom=0)


def _draw_terms(axes: Axes, rows: list[dict[str, Any]]) -> None:
    factors = [row["factor"] for row in rows]
    is_measured = rows[0]["terms"] is not None
    simulated = [row["simulated_terms"] or row["searched"]["terms"] for row in rows]
    for number, name in enumerate(simulated[0]):
        colour = f"C{number}"
        label = None if is_measured else name
        axes.plot(factors, [terms[name] for terms in simulated], "--", color=colour, label=label)
        if is_measured:
            axes.plot(factors, [row["terms"][name] for row in rows], marker="o", color=colour, label=name)
    axes.axhline(1, color="grey", linewidth=0.5)
    axes.set(yscale="log", ylabel="factors of the ratio")
    _plain(axes)


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


def _plain(axes: Axes) -> None:
    """Numbers beside a logarithmic axis as people write them."""
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:.2g}")


def _finish(axes: Axes, factors: list[float], percent: float) -> None:
    axes.set(xlabel=f"P{percent:g} normalised latency within so many times the unloaded", xscale="log")
    axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
    axes.set_xticks([], minor=True)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
