"""`jitney bench`: measurements of this machine."""

from __future__ import annotations

import json

import click

from gateway.commands.bench_capacity import capacity
from gateway.commands.bench_gateway import gateway
from gateway.commands.bench_model import decode, floor, iteration, offline, single
from gateway.commands.bench_online import online
from gateway.commands.bench_policies import policies
from gateway.commands.bench_soak import soak
from gateway.commands.make_model import make_model


@click.group()
def bench() -> None:
    """Measure what the engine costs on this machine."""


@bench.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--iterations", type=click.IntRange(min=10), default=500, show_default=True, help="Per state.")
def scheduler(as_json: bool, iterations: int) -> None:
    """Measure an iteration outside the model, with the default policies."""
    from core_engine.lab.bench import render_scheduler_bench, run_scheduler_bench

    report = run_scheduler_bench(iterations)
    click.echo(json.dumps(report, indent=2) if as_json else render_scheduler_bench(report))


for command in (offline, decode, single, online, capacity, gateway, floor, iteration, policies, soak, make_model):
    bench.add_command(command)
