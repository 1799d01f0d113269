"""Kernels in Triton for NVIDIA GPUs, compiled by it when they are first launched.

`register_kernels` is what the entry point `triton` of the group `jitney.kernels` names.

**They have never run on a GPU.** Triton's interpreter computes them on the CPU, where the tests compare
them with float64; that says what they compute, and nothing of how fast, nor that every shape of tile
fits every GPU. Tile sizes, warps and stages are reasoned, not measured.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_engine.model.kernels import KernelRegistry

_log = logging.getLogger("jitney.kernels")
_OLDEST = (8, 0)  # compute capability: bfloat16 in the matrix units, and what Triton itself supports


def register_kernels(registry: KernelRegistry) -> None:
    """Offer attention and fused operators for CUDA; without Triton, or on too old a GPU, say so and offer nothing."""
    if registry.device_type != "cuda":
        return
    if find_spec("triton") is None:
        _log.warning(
            "going on with torch's own operations, which are slower: no Triton; install it by `pip install triton`"
        )
        return
    import torch

    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    if (device.major, device.minor) < _OLDEST:
        _log.warning(
            "going on with torch's own operations, which are slower: %s has compute capability %d.%d, and the Triton "
            "kernels need 8.0",
            device.name, device.major, device.minor,
        )  # fmt: skip
        return
    from contrib_kernels.triton.attention import TritonAttention
    from contrib_kernels.triton.operators import TritonOperators

    registry.register(TritonAttention(device.multi_processor_count))
    registry.register_operators(TritonOperators())
