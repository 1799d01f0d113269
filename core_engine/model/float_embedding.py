"""Tables of embeddings of float32 models, held in no more bits than they need, or not at all.

Most output layers share their weight with the table that tokens are looked up in. Once such a layer has packed the
weight, a row can be read from there. A table of its own that came as bfloat16 stays that, and the rows that are looked
up are widened. Either way they are the same numbers as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from core_engine.model.kernels import PackedProduct
from core_engine.model.packed_linear import replace_layers

_NUM_TRIAL_ROWS = 1000


class FloatEmbedding(nn.Module):
    """What `source` reads, in the place of the `nn.Embedding` that it stands for."""

    def __init__(self, source: PackedProduct | _Table) -> None:
        super().__init__()
        self.source = source
        # transformers takes a model's format and device from its first parameter.
        self.placeholder = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Float32 `[.., size]` of int64 `[..]`."""
        return self.source.rows(token_ids)

    def unpacked(self, weight: nn.Parameter | None) -> nn.Embedding:
        """The plain table again, which shares this weight where there is one."""
        if weight is None:
            weight = nn.Parameter(self.source.weight(), requires_grad=False)
        embedding = nn.Embedding(*weight.shape, device="meta")
        embedding.weight = weight
        return embedding


class _Table(nn.Module):
    """A weight in bfloat16."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("numbers", weight.bfloat16(), persistent=False)
        self.numbers: torch.Tensor

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        return functional.embedding(indices, self.numbers).float()

    def weight(self) -> torch.Tensor:
        return self.numbers.float()


def is_bfloat16(weight: torch.Tensor) -> bool:
    """Whether a float32 weight holds nothing but bfloat16 numbers."""
    return torch.equal(weight.bfloat16().float(), weight)


@torch.inference_mode()
def float_embeddings(model: nn.Module, products: Mapping[int, PackedProduct | None]) -> None:
    """Replace the `nn.Embedding` tables of a float32 model by FloatEmbedding ones.

    `products` says of weights, by their ids, how linear layers have them: packed as they are by that product, or
    plain (None).
    """

    def narrowed(embedding: nn.Embedding) -> nn.Module:
        weight, shared = embedding.weight.detach(), products.get(id(embedding.weight))
        if embedding.max_norm is not None:  # a look-up changes the table
            return embedding
        if shared is not None and _reads(shared, weight):
            return FloatEmbedding(shared)
        if id(embedding.weight) in products and shared is None:
            return embedding
        return FloatEmbedding(_Table(weight)) if is_bfloat16(weight) else embedding

    replace_layers(model, nn.Embedding, narrowed)


def unfloat_embeddings(model: nn.Module, weights: Mapping[Any, nn.Parameter]) -> None:
    """Undo `float_embeddings`; `weights` are those of linear layers that are plain again, by their products."""
    replace_layers(model, FloatEmbedding, lambda embedding: embedding.unpacked(weights.get(embedding.source)))


def _reads(product: PackedProduct, weight: torch.Tensor) -> bool:
    """Whether the product finds the weight's rows, as far as a trial tells."""
    indices = torch.arange(0, len(weight), len(weight) // _NUM_TRIAL_ROWS | 1)  # an odd step comes to every lane
    return torch.equal(product.rows(indices), weight[indices])
