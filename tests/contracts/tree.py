"""The files of this project, and what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("core_engine", "gateway", "plugins", "contrib_kernels")
HIDDEN_BUT_OURS = {".ci", ".gitignore", ".pre-commit-config.yaml"}
GENERATED = {"__pycache__", "build", "dist"}


@cache
def sources(*folders: str) -> list[str]:
    """Paths, relative to the root, of all Python files in these folders of the root."""
    return sorted(
        str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py") if _is_ours(path)
    )


def all_files() -> Iterator[Path]:
    """Every file that belongs to the project."""
    for entry in ROOT.iterdir():
        if entry.name.startswith(".") and entry.name not in HIDDEN_BUT_OURS:
            continue
        yield from (
            path for path in (entry.rglob("*") if entry.is_dir() else [entry]) if path.is_file() and _is_ours(path)
        )


def _is_ours(path: Path) -> bool:
    return not any(part in GENERATED or part.endswith(".egg-info") for part in path.parts[len(ROOT.parts) :])


@cache
def syntax(source: str) -> ast.Module:
    """The syntax tree of a file, given relative to the root."""
    return ast.parse((ROOT / source).read_text(), source)


@cache
def imports(source: str) -> list[tuple[str, str | None]]:
    """(module, name or None) of every import in the file, wherever it stands."""
    found: list[tuple[str, str | None]] = []
    for node in _statements(syntax(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}:{node.lineno} imports relatively"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below, and whatever holds them; what stands inside of expressions is left out."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, block, ())
        for child in below if isinstance(below, list) else ():
            yield child
            yield from _statements(child)


def is_within(module: str, *packages: str) -> bool:
    """Whether the module is one of these or inside of one."""
    return any(module == package or module.startswith(package + ".") for package in packages)
