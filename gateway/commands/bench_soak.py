"""`jitney bench soak`: a long load at a full pool."""

from __future__ import annotations

import asyncio
import json

import click


@click.command()
@click.option("--minutes", type=click.FloatRange(min=2), default=10.0, show_default=True, help="How long.")
@click.option("--serve-option", "options", multiple=True, help="An argument for `jitney serve`; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on one line.")
def soak(minutes: float, options: tuple[str, ...], *, as_json: bool) -> None:
    """Load a server of its own without a pause, and report memory and latency by the minute."""
    from gateway.bench.figures import machine, rounded
    from gateway.bench.soak import soak as run

    figures = asyncio.run(run(minutes, list(options), lambda line: click.echo(line, err=True)))
    report = {"machine": machine()} | rounded(figures)
    click.echo(json.dumps(report) if as_json else json.dumps(report, indent=2))
