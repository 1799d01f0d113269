"""What the commands that measure share: options, the report's frame, and the refusal on a busy machine."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gateway.commands.options import readable

Figures = dict[str, Any]


def reports(measure: Callable[..., Figures]) -> Callable[..., None]:
    """Make a command of a function that returns figures: adds --json and --force, checks that nothing else ran.

    The function's `progress` hears a line for each step. Where others computed meanwhile the command ends
    with an error instead of figures; with --force it reports and says so. A function that raises Disturbed by
    itself has `foreign_cores` among its figures.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
    @click.option("--force", is_flag=True, help="Report even if other processes computed meanwhile.")
    @functools.wraps(measure)
    def command(*, as_json: bool, force: bool, **options: Any) -> None:
        from gateway.bench.figures import machine, rounded
        from gateway.bench.quiet import Disturbed, Watch, is_quiet

        watch = Watch()
        try:
            figures = measure(progress=lambda line: click.echo(f"... {line}", err=True), **options)
            foreign_cores = figures.get("foreign_cores", watch.foreign_cores())
            if not is_quiet(foreign_cores) and not force:
                raise Disturbed(foreign_cores)
        except Disturbed as error:
            raise click.ClickException(str(error)) from error
        quiet = {"quiet": is_quiet(foreign_cores), "foreign_cores": foreign_cores}
        report = rounded(figures | {"machine": machine()} | quiet)
        click.echo(json.dumps(report) if as_json else json.dumps(report, indent=2))

    return command


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the model that a command loads in its own process."""
    for option in (
        click.option("--policy", "policies", multiple=True, metavar="NAME[:OPTION=VALUE,...]", help="Repeatable."),
        click.option("--threads", type=int, help="CPU threads of the model; default: one per core."),
        click.option("--quantize", help="int8: linear layers with such weights."),
        click.option("--dtype", default="auto", show_default=True, help="Number format."),
        click.option("--model", default="smollm2", show_default=True, help="A directory, .gguf file, hub id or name."),
    ):
        command = option(command)
    return command


def plot_option(description: str, *, is_directory: bool = False) -> Callable[..., Any]:
    """--plot, refused at once where the library that draws is missing, or a file's name doesn't say how to draw."""

    def check(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
        if path is None:
            return None
        if importlib.util.find_spec("matplotlib") is None:
            raise click.UsageError("--plot needs matplotlib: pip install 'jitney[plot]', or leave the option out")
        if not is_directory and path.suffix not in (".png", ".svg"):
            raise click.BadParameter(f"'{path}' says not how to draw: end it in .png or .svg", context, parameter)
        return path

    kind = click.Path(path_type=Path, dir_okay=is_directory, file_okay=not is_directory)
    return click.option("--plot", type=kind, callback=check, help=description)


def engine_config(**options: Any) -> Any:
    """The EngineConfig of these options; raises click.UsageError for a wrong one."""
    import msgspec

    from core_engine import ConfigurationError, EngineConfig, checked

    given = {name: value for name, value in options.items() if value is not None}
    try:
        return checked(given, EngineConfig)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise click.UsageError(readable(error, given)) from error
