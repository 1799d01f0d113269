"""KVCache: the paged keys and values of one attention layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch


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

    def clear(self, blocks: torch.Tensor) -> None:
        """Zero these blocks: what a former owner left in slots that aren't written yet."""
        if blocks.numel():
            self.keys.index_fill_(1, blocks, 0)
            self.values.index_fill_(1, blocks, 0)

    def store(self, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Write `[num_kv_heads, num_tokens, size]` at these slots."""
        self.keys.flatten(1, 2).index_copy_(1, slots, key)
        self.values.flatten(1, 2).index_copy_(1, slots, value)
