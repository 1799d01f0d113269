"""`jitney bench offline | decode | single | floor | iteration`: the engine alone, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gateway.commands.measuring import Figures, engine_config, model_options, plot_option, reports


def _command(name: str, summary: str) -> click.Command:
    @click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Medians are of so many.")
    @click.option("--requests", "num_requests", type=click.IntRange(min=1), help="Only the first so many.")
    @click.option("--versus", type=click.Choice(["transformers"]), help="Run this as well, alternating.")
    @model_options
    @reports
    def measure(
        *, runs: int, num_requests: int | None, versus: str | None, progress: Callable[[str], None], **options: Any
    ) -> Figures:
        from gateway.bench.at_once import at_once

        return at_once(
            name,
            engine_config(**options),
            num_runs=runs,
            num_requests=num_requests,
            versus_transformers=versus is not None,
            progress=progress,
        )

    return click.command(name, help=summary)(measure)


offline = _command("offline", "64 requests at once: prompts of 32 to 512 tokens, outputs of 1 to 128.")
decode = _command("decode", "32 requests at once: prompts of 32 tokens, outputs of 256.")
single = _command("single", "One request by itself: prompt of 128 tokens, output of 128.")


@click.command()
@model_options
@reports
def floor(*, progress: Callable[[str], None], **options: Any) -> Figures:
    """The model's linear layers by themselves, by number of rows, and the speed of memory."""
    from core_engine.lab.at_once import describe_floor

    config = engine_config(**options)
    progress("the linear layers")
    return {"workload": "floor", "model": config.model} | describe_floor(config)


@click.command()
@click.option("--profile", "is_profile", is_flag=True, help="Where the time goes: operations and functions.")
@plot_option("Draw both series into iteration-running.svg and iteration-context.svg there.", is_directory=True)
@model_options
@reports
def iteration(*, is_profile: bool, plot: Path | None, progress: Callable[[str], None], **options: Any) -> Figures:
    """One decode iteration against running sequences (1 to 256) and context (128 to 8,191 tokens)."""
    if is_profile:
        if plot is not None:
            raise click.UsageError(
                "--plot draws the two series, which --profile doesn't measure; leave out one of them"
            )
        from core_engine.lab.profiling import profile_iterations

        return profile_iterations(engine_config(**options), progress=progress)
    from core_engine.lab.iteration import iteration_costs

    figures = iteration_costs(engine_config(**options), progress=progress)
    if plot is not None:
        from gateway.bench.plots import plot_iteration

        plot_iteration(figures, plot)
    return figures
