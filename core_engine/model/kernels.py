"""What an attention kernel is, and the registry that backends put theirs into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from core_engine.errors import ModelError
from core_engine.model.layout import BatchLayout, Reach


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What one attention layer is like; fixed for the life of a model.

    Query heads come in groups of `num_heads // num_kv_heads` that share a key head. Sizes are
    elements per head. `softcap` bounds the scores by `softcap * tanh(score / softcap)`; `has_sinks`
    says that each head has one more logit in its softmax that no key stands for.
    """

    num_heads: int
    num_kv_heads: int
    key_size: int
    value_size: int
    scaling: float
    reach: Reach
    softcap: float | None
    has_sinks: bool
    dtype: torch.dtype
    device_type: str


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of one attention layer: `[num_kv_heads, num_blocks + 1, block_size, size]`.

    Head by head, so that what a head reads of a block is one piece, and the blocks of all heads are a
    batch of matrices. The last block belongs to nobody and stays zero, for kernels that pad their
    block tables.
    """

    keys: torch.Tensor
    values: torch.Tensor

    @property
    def null_block(self) -> int:
        """The block that is never handed out."""
        return self.keys.shape[1] - 1


class AttentionKernel(Protocol):
    """Attention of a flattened batch over paged keys and values.

    Called on the engine thread. Within one pass `plan` is called once for each different shape, and
    `write` before `attend` for every layer. A reach that no sequence of the pass is long enough to
    meet is given as the unbounded one, so that layers of different reach share a plan where they can.
    """

    name: str

    def refusal(self, shape: AttentionShape) -> str | None:
        """Why this kernel can't serve such a layer; None where it can."""
        ...

    def plan(self, layout: BatchLayout, shape: AttentionShape, null_block: int) -> Any:
        """What all layers of that shape share in this pass: indices, masks, partitions."""
        ...

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layout: BatchLayout) -> None:
        """Store `[num_kv_heads, num_tokens, size]` at the slots of the layout."""
        ...

    def attend(
        self,
        query: torch.Tensor,
        cache: KVCache,
        plan: Any,
        shape: AttentionShape,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        """Fill `output` `[num_tokens, num_heads, value_size]` from `query` `[num_heads, num_tokens, key_size]`.

        The query at position p of a sequence sees its keys `shape.reach.first_key(p)` to p.
        `sinks` is `[num_heads]`.
        """
        ...


class KernelRegistry:
    """Kernels in the order of preference: what registers later is asked earlier."""

    def __init__(self) -> None:
        self._kernels: list[AttentionKernel] = []

    def register(self, kernel: AttentionKernel) -> None:
        """Prefer this kernel to those registered so far."""
        self._kernels.insert(0, kernel)

    def attention_for(self, shape: AttentionShape) -> AttentionKernel:
        """The preferred kernel that serves this shape; raises ModelError with every refusal if none does."""
        refusals = []
        for kernel in self._kernels:
            refusal = kernel.refusal(shape)
            if refusal is None:
                return kernel
            refusals.append(f"{kernel.name}: {refusal}")
        raise ModelError(f"no attention kernel serves {shape}: " + "; ".join(refusals or ["none is registered"]))
