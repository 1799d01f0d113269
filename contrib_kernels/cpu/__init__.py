"""Kernels in C++ for the CPU, built on first use with the system's compiler.

`register_kernels` is what the entry point `cpu` of the group `jitney.kernels` names. The sources are in
`src/`; one text serves every instruction set, and the best one that the processor has is built.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_engine.model.kernels import KernelRegistry

_log = logging.getLogger("jitney.kernels")


def register_kernels(registry: KernelRegistry) -> None:
    """Offer kernels for all that the registry has a place for; without a compiler nothing."""
    if registry.device_type != "cpu":
        return
    from contrib_kernels.cpu.attention import CpuAttention
    from contrib_kernels.cpu.best import CpuBestTokens
    from contrib_kernels.cpu.build import BuildError, build
    from contrib_kernels.cpu.float_rows import FloatRows
    from contrib_kernels.cpu.int8 import CpuInt8Rows
    from contrib_kernels.cpu.library import Library
    from contrib_kernels.cpu.operators import CpuOperators
    from contrib_kernels.cpu.rows import FewRows
    from contrib_kernels.cpu.stack import CpuLayerStack

    try:
        library = Library(build())
    except BuildError as error:
        _log.warning("going on with torch's own operations, which are slower: %s", error)
        return
    registry.register(CpuAttention(library))
    registry.register_operators(CpuOperators(library))
    registry.register_best_tokens(CpuBestTokens(library))
    registry.register_int8_rows(CpuInt8Rows(library))
    registry.register_float_product(FloatRows(library))
    registry.register_layer_stack(CpuLayerStack(library))
    if library.has_few_rows:
        registry.register_row_product(FewRows(library))
