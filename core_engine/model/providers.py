"""Kernels of other packages: found through entry points of the group `jitney.kernels`.

Each names a function `register_kernels(registry)`, called once at start, before the model is loaded: it
registers what it has for `registry.device_type` (see KernelRegistry). Nothing registered is
trusted: each kernel is compared with what it replaces before it is used.
"""

from __future__ import annotations

import importlib.metadata

from core_engine.errors import ModelError
from core_engine.model.kernels import KernelRegistry
from core_engine.model.reference import ReferenceAttention

GROUP = "jitney.kernels"
_OWN_PACKAGE = "jitney"
_REFERENCE = "torch"


def kernels_for(device_type: str, names: tuple[str, ...] | None) -> KernelRegistry:
    """Torch's own kernels and, preferred to these, those named; by default what comes with Jitney.

    The later of two names is preferred; `torch` stands for nothing more. Raises ModelError for a name
    that no package offers, or whose function fails.
    """
    registry = KernelRegistry(device_type)
    registry.register(ReferenceAttention())
    for point in _own() if names is None else [_find(name) for name in names if name != _REFERENCE]:
        try:
            point.load()(registry)
        except Exception as error:
            raise ModelError(
                f"kernels '{point.name}' ({point.value}) fail at start: {type(error).__name__}: {error}; leave them "
                "out by naming others, or none"
            ) from error
    return registry


def _own() -> list[importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=GROUP)
    return [point for point in points if point.dist is not None and point.dist.name == _OWN_PACKAGE]


def _find(name: str) -> importlib.metadata.EntryPoint:
    points = importlib.metadata.entry_points(group=GROUP)
    if name not in points.names:
        raise ModelError(f"there are no kernels '{name}'; there are {', '.join(sorted({_REFERENCE, *points.names}))}")
    return points[name]
