"""`jitney bench make-model`: a model of another size to measure, with random weights."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("shape")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def make_model(shape: str, directory: Path) -> None:
    """Write a Llama of that SHAPE with random bfloat16 weights to DIRECTORY, which must be empty or new.

    SHAPE is 1.1b, that of TinyLlama, which takes 2.2 GB. `--model DIRECTORY` then names it to any other command.
    """
    from core_engine.lab.random_model import SHAPES, write_random_model

    if shape not in SHAPES:
        raise click.UsageError(f"there is no shape '{shape}': name one of {', '.join(SHAPES)}")
    if directory.exists() and any(directory.iterdir()):
        raise click.UsageError(f"{directory} is not empty: name a directory that is, or a new one")
    try:
        write_random_model(SHAPES[shape], directory)
    except OSError as error:
        raise click.ClickException(f"the model could not be written: {error}") from error
    click.echo(f"--model {directory}")
