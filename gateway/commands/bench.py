"""`jitney bench`: measurements."""

from __future__ import annotations

import click

from gateway.commands.bench_policies import policies


@click.group()
def bench() -> None:
    """Measure this machine."""


@bench.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def scheduler(as_json: bool) -> None:
    """Cost of an iteration outside the model."""


bench.add_command(policies)
