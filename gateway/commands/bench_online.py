"""`jitney bench online`: Poisson arrivals over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import click

from gateway.commands.measuring import Figures, reports


@click.command()
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="Requests/s.")
@click.option("--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="For how long.")
@click.option("--base-url", help="A running server, any OpenAI-compatible one, without /v1; default: one of our own.")
@click.option("--api-key", help="The key it wants.")
@click.option("--model", help="The model's name there; default: the first.")
@click.option("--serve-option", "options", multiple=True, help="An argument for our own server; repeatable.")
@reports
def online(
    *,
    rate: float,
    seconds: float,
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    options: tuple[str, ...],
    progress: Callable[[str], None],
) -> Figures:
    """Prompts of 32 to 512 tokens, outputs of 1 to 128, streamed, as they come to a server in use.

    With --base-url the server's own work counts as that of others: add --force where it runs on this machine.
    """
    from gateway.bench.online import online as run

    return asyncio.run(
        run(
            requests_per_second=rate,
            seconds=seconds,
            base_url=base_url,
            api_key=api_key,
            model=model,
            serve_options=options,
            progress=progress,
        )
    )
