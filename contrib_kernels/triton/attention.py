"""TritonAttention: paged attention of mixed batches in one launch, and one more where long decodes are cut."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton import next_power_of_2

from contrib_kernels.triton.attention_kernels import attend_items, merge_parts
from contrib_kernels.triton.settings import FORMATS, FUSED_MULTIPLY_ADD
from contrib_kernels.triton.slot_kernels import write_slots
from contrib_kernels.work import Item, Merge, block_tables, cut_decodes, items_of
from core_engine.model.kernels import AttentionShape
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import BatchLayout, upload

_MAX_SIZE = 256  # elements of a head: a tile of keys and one of values must fit in shared memory
_LEAST_WIDTH = 16  # of any side of a product, for the matrix units
_DECODE_ROWS = 16  # queries of a tile times query heads of a group, where all rows are decodes
_MIXED_ROWS = 64  # else
_QUERY_BYTES = 32 * 1024  # of a tile's queries, padded; with all the rest it makes less than the 99 KiB of small GPUs
_TILE_BYTES = 16 * 1024  # of keys: as many again of values, and both twice, for loads ahead of their use
_MAX_TILE_KEYS = 128
_MIN_PART_KEYS = 128  # a decode isn't cut into parts of fewer keys
_PROGRAMS_PER_PROCESSOR = 2  # of the whole work: as fine as balance needs


@dataclass(frozen=True, slots=True)
class _Plan:
    items: torch.Tensor  # int32 [items, 8]
    merges: torch.Tensor  # int32 [merges, 4]
    tables: torch.Tensor  # int32, all block tables one after another
    parts: torch.Tensor  # float32 [parts, heads, value size + 2]
    num_rows: int
    block_size: int


class TritonAttention:
    """AttentionKernel for CUDA, for float32, bfloat16 and float16.

    Layout as KVCache says; any block size; heads of up to 256 elements, padded to a power of two in
    registers only. A decode moves `(key_size + value_size) * itemsize` bytes for a key of one key head,
    whatever the number of query heads; a chunk moves as many for each tile of `64 // group` queries, and
    takes `2 * group * (key_size + value_size)` operations for each pair of a query and a key that it sees.
    `processors` is the number of multiprocessors to share the work out to.
    """

    name = "triton"
    reads_whole_blocks = False

    def __init__(self, processors: int) -> None:
        self._processors = processors

    def refusal(self, shape: AttentionShape) -> str | None:
        """Serves CUDA's three formats, and heads and groups that fit into a tile."""
        if shape.device_type != "cuda":
            return "it computes on NVIDIA GPUs"
        if shape.dtype not in FORMATS:
            return f"it computes in float32, bfloat16 and float16, not {shape.dtype}"
        if max(shape.key_size, shape.value_size) > _MAX_SIZE:
            return f"it has room for heads of {_MAX_SIZE} elements"
        if shape.num_heads // shape.num_kv_heads > _max_rows(shape):
            return f"it has room for {_max_rows(shape)} query heads of such a size that share a key head"
        return None

    def plan(self, layout: BatchLayout, shape: AttentionShape, null_block: int) -> _Plan:
        """Cut the batch into items: tiles of a chunk's queries, decodes, and parts of long decodes; longest first."""
        group = shape.num_heads // shape.num_kv_heads
        least_rows = _DECODE_ROWS if all(row.num_queries == 1 for row in layout.rows) else _MIXED_ROWS
        num_rows = max(min(least_rows, _max_rows(shape)), next_power_of_2(group))
        tiles = items_of(layout.rows, shape.reach, num_rows // group)
        programs = _PROGRAMS_PER_PROCESSOR * self._processors
        keys = sum(tile.num_keys for tile in tiles) * shape.num_kv_heads
        items, merges, num_parts = cut_decodes(tiles, max(_MIN_PART_KEYS, keys // programs))
        items.sort(key=_num_keys, reverse=True)
        return _Plan(
            *_upload(items, merges, block_tables(layout.rows), layout.device),
            torch.empty(num_parts, shape.num_heads, shape.value_size + 2, device=layout.device),
            num_rows,
            layout.block_size,
        )

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layout: BatchLayout) -> None:
        """One launch for keys and values; reads and writes each element once."""
        key, value = (new if new.stride(2) == 1 else new.contiguous() for new in (key, value))
        num_kv_heads, num_tokens, key_size = key.shape
        value_size = value.shape[2]
        if not num_tokens:
            return
        write_slots[(num_tokens,)](
            key, key.stride(0), key.stride(1),
            value, value.stride(0), value.stride(1),
            cache.keys, cache.keys.stride(0),
            cache.values, cache.values.stride(0),
            layout.slots,
            num_kv_heads, key_size, value_size,
            next_power_of_2(num_kv_heads), next_power_of_2(key_size), next_power_of_2(value_size),
            **FUSED_MULTIPLY_ADD,
        )  # fmt: skip

    def attend(
        self,
        query: torch.Tensor,
        cache: KVCache,
        plan: _Plan,
        shape: AttentionShape,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        """One launch for the whole batch, one more if anything was cut."""
        if not len(plan.items):
            return
        query = query if query.stride(2) == 1 else query.contiguous()
        sinks = None if sinks is None else sinks.float().contiguous()
        value_width = _width(shape.value_size)
        attend_items[(len(plan.items), shape.num_kv_heads)](
            query, query.stride(0), query.stride(1),
            cache.keys, cache.keys.stride(0),
            cache.values, cache.values.stride(0),
            output, output.stride(0),
            plan.parts, sinks, plan.items, plan.tables,
            shape.scaling, shape.softcap, shape.reach.window, shape.reach.chunk,
            shape.num_heads // shape.num_kv_heads, shape.num_heads, shape.key_size, shape.value_size, plan.block_size,
            plan.num_rows, _tile_keys(shape), _width(shape.key_size), value_width,
            num_warps=4 if plan.num_rows * value_width <= 64 * 128 else 8, num_stages=2, **FUSED_MULTIPLY_ADD,
        )  # fmt: skip
        if len(plan.merges):
            merge_parts[(len(plan.merges), shape.num_heads)](
                output, output.stride(0), plan.parts, sinks, plan.merges,
                shape.num_heads, shape.value_size, value_width,
                num_warps=1, **FUSED_MULTIPLY_ADD,
            )  # fmt: skip


def _width(size: int) -> int:
    """A head's size, padded to what a product takes."""
    return max(_LEAST_WIDTH, next_power_of_2(size))


def _max_rows(shape: AttentionShape) -> int:
    """Rows of queries, a power of two, that a tile has room for."""
    return _QUERY_BYTES // (_width(shape.key_size) * shape.dtype.itemsize)


def _tile_keys(shape: AttentionShape) -> int:
    """Keys of a tile: a power of two, as many as fit in the bytes set aside for them."""
    width = _width(max(shape.key_size, shape.value_size))
    return max(_LEAST_WIDTH, min(_MAX_TILE_KEYS, _TILE_BYTES // (width * shape.dtype.itemsize)))


def _num_keys(item: Item) -> int:
    return item.num_keys


def _upload(
    items: list[Item], merges: list[Merge], tables: list[int], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All three in one transfer."""
    numbers = [number for record in (*items, *merges) for number in record] + tables
    flat = upload(torch.tensor(numbers, dtype=torch.int32), device)
    of_items, of_merges, of_tables = flat.split([len(items) * 8, len(merges) * 4, len(tables)])
    return of_items.view(-1, 8), of_merges.view(-1, 4), of_tables
