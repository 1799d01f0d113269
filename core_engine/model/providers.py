"""Kernels of other packages: found through entry points of the group `jitney.kernels`.

Each names a function `register_kernels(registry)`, called once at start, before the model is loaded: it
registers what it has for `registry.device_type` (see KernelRegistry). Nothing registered is
trusted: each kernel is compared with what it replaces before it is used.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import logging
from pathlib import Path

from core_engine.errors import ModelError
from core_engine.model.cache import identity
from core_engine.model.kernels import KernelRegistry
from core_engine.model.reference import ReferenceAttention

_log = logging.getLogger("jitney.model")

GROUP = "jitney.kernels"
_OWN_DISTRIBUTION = "jitney"
_OWN_PACKAGE = "contrib_kernels"
_REFERENCE = "torch"


def kernels_for(device_type: str, names: tuple[str, ...] | None) -> KernelRegistry:
    """Torch's own kernels and, preferred to these, those named; by default what comes with Jitney.

    The later of two names is preferred; `torch` stands for nothing more. Raises ModelError for a name
    that no package offers, or whose function fails.
    """
    registry = KernelRegistry(device_type)
    registry.register(ReferenceAttention())
    for point in _points(names):
        try:
            point.load()(registry)
        except Exception as error:
            raise ModelError(
                f"kernels '{point.name}' ({point.value}) fail at start: {type(error).__name__}: {error}; leave them "
                "out by naming others, or none"
            ) from error
    return registry


def origins(names: tuple[str, ...] | None) -> list[str]:
    """For each of these kernels a text that changes with the release, or any file, of the package they come in."""
    return [
        f"{point.value} {point.dist.version if point.dist else ''} {identity(_files(point.module))}"
        for point in _points(names)
    ]


def _files(module: str) -> list[Path]:
    """Everything that lies in the top-level package of a module, but what Python itself leaves there."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec.origin else []
    return sorted(
        file
        for directory in spec.submodule_search_locations
        for file in Path(directory).rglob("*")
        if file.is_file() and file.parent.name != "__pycache__"
    )


def _points(names: tuple[str, ...] | None) -> list[importlib.metadata.EntryPoint]:
    return _own() if names is None else [_find(name) for name in names if name != _REFERENCE]


def _own() -> list[importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=GROUP)
    own = [point for point in points if point.dist is not None and point.dist.name == _OWN_DISTRIBUTION]
    if not own and importlib.util.find_spec(_OWN_PACKAGE) is not None:
        _warn_of_old_installation()
    return own


@functools.cache
def _warn_of_old_installation() -> None:
    _log.warning(
        "%s is here, but this environment knows no kernels of it, so torch's own compute, which are slower; it was "
        "installed before there were any: install Jitney anew (pip install -e ., say)",
        _OWN_PACKAGE,
    )


def _find(name: str) -> importlib.metadata.EntryPoint:
    points = importlib.metadata.entry_points(group=GROUP)
    if name not in points.names:
        raise ModelError(f"there are no kernels '{name}'; there are {', '.join(sorted({_REFERENCE, *points.names}))}")
    return points[name]
