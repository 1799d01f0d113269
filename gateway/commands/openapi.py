"""`jitney openapi`: the document of the HTTP API."""

from __future__ import annotations

import json

import click


@click.command()
def openapi() -> None:
    """Print the OpenAPI document, the admin API included."""
    from gateway.openapi.document import describe

    click.echo(json.dumps(describe(with_admin=True), indent=2, ensure_ascii=False))
