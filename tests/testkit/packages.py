"""Packages with policies, as installing them would leave them, in a directory on the path."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, policies: dict[str, str], code: str = ""
) -> None:
    """A distribution of that name, its entry points by name, and a module `<name>_module` with this code."""
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{policy} = {value}" for policy, value in policies.items()]
    (info / "entry_points.txt").write_text("\n".join(["[jitney.policies]", *lines]) + "\n")
    (directory / f"{name}_module.py").write_text(code)
    monkeypatch.syspath_prepend(str(directory))


GOOD = '''
import msgspec
from typing import Annotated
from core_engine.hookspecs import hookimpl


class Options(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=9)]
    names: list[str] = []


class Good:
    """Ranks by nothing.

    Guarantees nothing at all. It has been
    written for a test.
    """

    Options = Options
    hookspec_range = (1, 1)

    def __init__(self, options, seed):
        self.options, self.seed = options, seed

    @hookimpl
    def rank_sequences(self):
        return (), set()
'''
