"""`jitney bench capacity`: iteration-level scheduling against static batching, at the same latency."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gateway.commands.measuring import Figures, engine_config, model_options, plot_option, reports


@click.command()
@click.option(
    "--requests", "num_requests", type=click.IntRange(min=8), default=64, show_default=True, help="At each rate."
)
@click.option(
    "--rates",
    "num_rates",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Of each system, spread over what the simulation expects.",
)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(1, 4096),
    multiple=True,
    help="Of static batching; repeatable, the best is measured. Default: 8, 16, 32 and 64.",
)
@click.option("--every-kind", is_flag=True, help="Measure every kind of static batching, not the best alone.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep what is measured in this file, and go on from what it has.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    help="Begin no measurement later than that; 0: simulate only. Default: no limit.",
)
@plot_option("Draw the curves into this .png or .svg file.")
@model_options
@reports
def capacity(
    *,
    num_requests: int,
    num_rates: int,
    batch_sizes: tuple[int, ...],
    every_kind: bool,
    keep: Path | None,
    minutes: float | None,
    plot: Path | None,
    progress: Callable[[str], None],
    **options: Any,
) -> Figures:
    """The highest rate whose P99 and median latency per token stay under 2, 3, 5 and 10 times the unloaded.

    The engine runs in this process; idle time is skipped. With more rates capacities are read between closer ones.
    With --keep it can be done in several turns: `complete` in the figures says when none is left.
    """
    from gateway.bench.capacity import BATCH_SIZES
    from gateway.bench.capacity import capacity as run
    from gateway.bench.capacity_runs import Runs
    from gateway.bench.kept import WrongFile

    config = engine_config(**options)
    force = click.get_current_context().params["force"]
    try:
        runs = Runs(config, num_requests, path=keep, force=force, minutes=minutes, progress=progress)
    except WrongFile as error:
        raise click.BadParameter(str(error), param_hint="--keep") from error
    figures = run(
        runs,
        policies=config.policies,
        batch_sizes=batch_sizes or BATCH_SIZES,
        num_rates=num_rates,
        every_kind=every_kind,
        progress=progress,
    )
    if plot is not None:
        from gateway.bench.plots import plot_capacity

        plot_capacity(figures, plot)
    return figures
