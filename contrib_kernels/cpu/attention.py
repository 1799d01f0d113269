"""CpuAttention: paged attention of mixed batches in one call of the C++ library."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass

import torch

from contrib_kernels.cpu.library import AttentionCall, Library, is_bf16, serves
from contrib_kernels.work import Item, block_tables, cut_decodes, items_of
from core_engine.model.kernels import AttentionShape
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import BatchLayout

_MAX_SIZE = 512  # elements of a head: what the sources leave room for
_TILE_ROWS = 192  # queries of a tile times query heads of a group: keys are packed once for so many
_MIN_PART_KEYS = 256  # a decode isn't cut into parts of fewer keys
_PARTS_PER_THREAD = 4  # of the whole work: as fine as balance needs


@dataclass(frozen=True, slots=True)
class _Plan:
    """Items and merges as `src/attention.h` has them, and room for the parts of cut items."""

    items: torch.Tensor  # int32 [items, 8]
    merges: torch.Tensor  # int32 [merges, 4]
    tables: torch.Tensor  # int32, all block tables one after another
    parts: torch.Tensor  # float32 [parts, heads, value size + 2]
    call: AttentionCall  # filled in but for what differs from layer to layer


class CpuAttention:
    """AttentionKernel in C++, for float32 and bfloat16.

    Layout as KVCache says; any block size; sums in float32. Reads each key and value of a sequence once
    per tile of queries: a decode moves `(key_size + value_size) * itemsize` bytes and takes
    `2 * group * (key_size + value_size)` operations for a key of one head.
    """

    reads_whole_blocks = False

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def refusal(self, shape: AttentionShape) -> str | None:
        """Serves the CPU's two formats, and heads of any but extreme size."""
        if shape.device_type != "cpu":
            return "it computes on the CPU"
        if not serves(shape.dtype):
            return f"it computes in float32 and bfloat16, not {shape.dtype}"
        if max(shape.key_size, shape.value_size) > _MAX_SIZE:
            return f"it has room for heads of {_MAX_SIZE} elements"
        return None

    def plan(self, layout: BatchLayout, shape: AttentionShape, null_block: int) -> _Plan:
        """Cut the batch into items: tiles of a chunk's queries, decodes, and parts of long decodes; longest first."""
        group = shape.num_heads // shape.num_kv_heads
        tiles = items_of(layout.rows, shape.reach, max(1, _TILE_ROWS // group))
        parts = _PARTS_PER_THREAD * torch.get_num_threads()
        items, merges, num_parts = cut_decodes(tiles, max(_MIN_PART_KEYS, sum(map(_cost, tiles)) // parts))
        items.sort(key=_cost, reverse=True)
        return _finish(
            torch.tensor(items, dtype=torch.int32),
            torch.tensor(merges, dtype=torch.int32),
            torch.tensor(block_tables(layout.rows), dtype=torch.int32),
            torch.empty(num_parts, shape.num_heads, shape.value_size + 2),
            shape,
            layout.block_size,
        )

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layout: BatchLayout) -> None:
        """Copy each head's part of each token to its slot."""
        for new, paged in ((key, cache.keys), (value, cache.values)):
            new = new if new.stride(2) == 1 else new.contiguous()
            item_bytes = new.element_size()
            self._library.write_slots(
                new.data_ptr(),
                new.stride(0) * item_bytes,
                new.stride(1) * item_bytes,
                paged.data_ptr(),
                paged.stride(0) * item_bytes,
                layout.slots.data_ptr(),
                new.shape[0],
                new.shape[1],
                new.shape[2] * item_bytes,
            )

    def attend(
        self,
        query: torch.Tensor,
        cache: KVCache,
        plan: _Plan,
        shape: AttentionShape,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        """One call for the whole batch."""
        query = query if query.stride(2) == 1 else query.contiguous()
        sinks = None if sinks is None else sinks.float().contiguous()
        call = plan.call
        call.query = query.data_ptr()
        call.query_head_stride, call.query_token_stride = query.stride(0), query.stride(1)
        call.keys, call.values = cache.keys.data_ptr(), cache.values.data_ptr()
        call.key_head_stride, call.value_head_stride = cache.keys.stride(0), cache.values.stride(0)
        call.output, call.output_token_stride = output.data_ptr(), output.stride(0)
        call.sinks = None if sinks is None else sinks.data_ptr()
        self._library.attend(byref(call))


def _finish(
    items: torch.Tensor,
    merges: torch.Tensor,
    tables: torch.Tensor,
    parts: torch.Tensor,
    shape: AttentionShape,
    block_size: int,
) -> _Plan:
    call = AttentionCall(
        items=items.data_ptr(),
        merges=merges.data_ptr(),
        tables=tables.data_ptr(),
        parts=parts.data_ptr(),
        num_items=items.shape[0],
        num_merges=merges.shape[0],
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        key_size=shape.key_size,
        value_size=shape.value_size,
        block_size=block_size,
        window=shape.reach.window or 0,
        chunk=shape.reach.chunk or 0,
        is_bf16=is_bf16(shape.dtype),
        scaling=shape.scaling,
        softcap=shape.softcap or 0.0,
    )
    return _Plan(items, merges, tables, parts, call)


def _cost(item: Item) -> int:
    return item.num_queries * item.num_keys
