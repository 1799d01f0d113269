"""`jitney bench policies`: what each policy must show, measured over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from gateway.bench.scenarios import SCENARIOS


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--serve-option", "options", multiple=True, help="An argument for `jitney serve`; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def policies(names: tuple[str, ...], options: tuple[str, ...], *, as_json: bool) -> None:
    """Run scenarios (all, unless named) against servers of their own; nothing else should run meanwhile.

    `foreign_cores` tells how much else did: beyond a tenth of a core the times say little.
    """
    from gateway.bench.figures import machine, rounded
    from gateway.bench.quiet import Watch
    from gateway.bench.scenarios import load

    report: dict[str, Any] = {"machine": machine()}
    for name in names or SCENARIOS:
        click.echo(f"{name}: {SCENARIOS[name]}", err=True)
        watch = Watch()
        figures = asyncio.run(load(name)(list(options)))
        report[name] = rounded(figures | {"foreign_cores": watch.foreign_cores()})
        if not as_json:
            click.echo(json.dumps({name: report[name]}, indent=2))
    if as_json:
        click.echo(json.dumps(report))
