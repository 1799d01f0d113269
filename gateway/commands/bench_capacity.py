"""`jitney bench capacity`: iteration-level scheduling against static batching, at the same latency."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gateway.commands.measuring import Figures, engine_config, model_options, plot_option, reports


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=10.0, show_default=True, help="About how long.")
@click.option(
    "--requests", "num_requests", type=click.IntRange(min=8), default=64, show_default=True, help="At each rate."
)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(1, 4096),
    multiple=True,
    help="Of static batching; repeatable, the best is measured. Default: 8, 16, 32 and 64.",
)
@plot_option("Draw the curves into this .png or .svg file.")
@model_options
@reports
def capacity(
    *,
    minutes: float,
    num_requests: int,
    batch_sizes: tuple[int, ...],
    plot: Path | None,
    progress: Callable[[str], None],
    **options: Any,
) -> Figures:
    """The highest rate whose P99 and median latency per token stay under 2, 3, 5 and 10 times the unloaded.

    The engine runs in this process; idle time is skipped. With more minutes the brackets get narrower.
    """
    from gateway.bench.capacity import BATCH_SIZES
    from gateway.bench.capacity import capacity as run

    figures = run(
        engine_config(**options),
        num_requests=num_requests,
        batch_sizes=batch_sizes or BATCH_SIZES,
        minutes=minutes,
        progress=progress,
    )
    if plot is not None:
        from gateway.bench.plots import plot_capacity

        plot_capacity(figures, plot)
    return figures
