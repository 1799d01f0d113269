"""Types of command-line options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container
from pathlib import Path
from typing import Any

import click

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?$", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Size(click.ParamType[int]):
    """A number of bytes, such as 512M or 2G (powers of 1024)."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse, or fail with what would be right."""
        match = _SIZE.match(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a size: write 512M or 2G", param, ctx)
        number, unit = match.groups()
        return int(float(number) * _FACTORS[unit.upper()])


class NamedModel(click.ParamType[dict[str, str]]):
    """A model, with the name that clients shall use or without: a table of [[models]]."""

    name = "model"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """Take what exists as it is; of anything else the part before `=` is the name."""
        name, separator, model = str(value).partition("=")
        if not separator or Path(str(value)).exists():
            return {"model": str(value)}
        if not name or not model:
            self.fail(f"{value!r} lacks a part: write NAME=MODEL", param, ctx)
        return {"name": name, "model": model}


class Alias(click.ParamType[tuple[str, str]]):
    """Another name of a model."""

    name = "alias"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """(alias, name of the model)."""
        alias, _, name = str(value).partition("=")
        if not alias or not name:
            self.fail(f"{value!r} is not an alias: write ALIAS=NAME", param, ctx)
        return alias, name


def read_keys(path: Path) -> list[str]:
    """Keys of a file, one a line; empty lines and those that begin with # are left out."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def readable(error: Exception, given: Container[str], file: Path | None = None) -> str:
    """An error of msgspec's about options as one of the command line, if the option is `given` there, or of the file.

    Others are told in their own words.
    """
    problem, found, path = str(error).partition(" - at `$.")
    if not found:
        return problem
    path = path.rstrip("`")
    name = path.partition("[")[0].partition(".")[0]
    if name in given or file is None:
        where = "--" + name.replace("_", "-").removesuffix("-bytes")
    else:
        where = f"{file.name}: {path}"
    return f"{where}: {problem[:1].lower()}{problem[1:]}"


def read_config(path: Path | None) -> dict[str, Any]:
    """The options of a TOML file, by name; an unknown one is refused with the near ones. No file: none."""
    if path is None:
        return {}
    from core_engine import ConfigurationError
    from gateway.deployment import OPTIONS, PARSERS, Named, check_names
    from gateway.settings import GatewaySettings

    try:
        options = tomllib.loads(path.read_text(encoding="utf-8"))
        check_names(
            options,
            (
                *OPTIONS,
                *GatewaySettings.__struct_fields__,
                *PARSERS,
                *Named.__struct_fields__,
                "profile",
            ),
            path.name,
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path.name} is not TOML: {error}") from error
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    return options
