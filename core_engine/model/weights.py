"""How much memory a model's weights take, in whatever form they are held."""

from __future__ import annotations

from itertools import chain

import torch
from torch import nn

from core_engine.model.packing import PACKED_LAYERS


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all parameters, buffers and packed weights; what several modules share counts once."""
    plain = {tensor.untyped_storage().data_ptr(): tensor for tensor in chain(model.parameters(), model.buffers())}
    packed = [module for module in model.modules() if isinstance(module, PACKED_LAYERS)]
    return sum(tensor.untyped_storage().nbytes() for tensor in plain.values()) + sum(
        module.packed_bytes for module in packed
    )


@torch.no_grad()
def release_file(model: nn.Module) -> None:
    """Copy every parameter and buffer that packing will not replace, so that nothing is left of the model's file.

    A tensor read from safetensors is a view of the whole mapped file: as long as one is left, the pages of all the
    others stay in memory. To be called before packing, and before anybody takes the address of a parameter.
    """
    replaced = {id(module.weight) for module in model.modules() if type(module) is nn.Linear}
    replaced -= {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for tensor in chain(model.parameters(), model.buffers()):
        if id(tensor) not in replaced:
            tensor.data = tensor.data.clone()
