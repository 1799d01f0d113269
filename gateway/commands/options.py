"""Types of command-line options."""

from __future__ import annotations

import re
from pathlib import Path

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


def read_keys(path: Path) -> list[str]:
    """Keys of a file, one a line; empty lines and those that begin with # are left out."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
