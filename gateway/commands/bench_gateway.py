"""`jitney bench gateway`: the gateway in front of a simulated engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import click

from gateway.commands.measuring import Figures, reports


@click.command()
@click.option("--clients", type=click.IntRange(min=1), default=64, show_default=True, help="Streams at once.")
@click.option("--tokens", type=click.IntRange(min=2), default=2000, show_default=True, help="Of each stream.")
@click.option("--tokens-per-second", type=float, help="Pace of the engine over all streams; default: its best.")
@click.option("--model", default="smollm2", show_default=True, help="Whose tokenizer to use.")
@reports
def gateway(
    *, clients: int, tokens: int, tokens_per_second: float | None, model: str, progress: Callable[[str], None]
) -> Figures:
    """Token events that one gateway process writes, and what it adds between two tokens."""
    from gateway.bench.alone import alone

    return asyncio.run(
        alone(clients=clients, tokens=tokens, tokens_per_second=tokens_per_second, model=model, progress=progress)
    )
