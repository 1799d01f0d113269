"""`jitney`: the command line, put together from its groups."""

from __future__ import annotations

import click

from gateway.commands.bench import bench
from gateway.commands.openapi import openapi
from gateway.commands.policies import policies
from gateway.commands.serve import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jitney", prog_name="jitney")
def main() -> None:
    """Serve language models, with scheduling decided by plugins."""


main.add_command(serve)
main.add_command(bench)
main.add_command(policies)
main.add_command(openapi)
