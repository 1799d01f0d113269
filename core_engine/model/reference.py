"""The reference attention: plain torch, any shape, any device; slower than a kernel made for the purpose.

Decodes of similar length attend together: their blocks are gathered into one padded tensor. Every
longer row gathers its own and attends in tiles of queries. Either way it is two matrix products with
a softmax between, batched over key heads; the query heads that share a key head, and the queries of a
tile, are the rows of a product. What a query may not see is a mask, built once in a pass for all
layers of the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core_engine.model.kernels import AttentionShape
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import BatchLayout, Reach, Row, upload_lists

_MIN_FILL = 0.6  # of the longest decode of a group; shorter ones start another group
_TILE_QUERIES = 128  # a tile looks no further than its last query, so small ones save half of a prompt's work
_MAX_TILE_ELEMENTS = 1 << 22  # of scores per head


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Rows of one query each, padded to the blocks of the longest."""

    rows: torch.Tensor  # [n] flat indices
    blocks: torch.Tensor  # [num_kv_heads * n * num_blocks], into the cache flattened over heads and blocks
    mask: torch.Tensor  # [n, 1, 1, num_blocks * block_size]: 0 where seen, else -inf


@dataclass(frozen=True, slots=True)
class _Tile:
    """Queries `start` to `stop` of the batch, over keys `first_key` to `end_key` of those gathered."""

    start: int
    stop: int
    first_key: int
    end_key: int
    mask: torch.Tensor  # [queries, keys], of the last keys of the tile; what is before them is seen


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A row of several queries."""

    blocks: torch.Tensor  # [num_kv_heads * num_blocks], likewise
    tiles: list[_Tile]


@dataclass(frozen=True, slots=True)
class _Plan:
    decodes: list[_Decodes]
    chunks: list[_Chunk]


class ReferenceAttention:
    """AttentionKernel by gathering blocks and calling torch."""

    name = "torch"
    reads_whole_blocks = True

    def refusal(self, shape: AttentionShape) -> str | None:
        """Serves everything."""
        return None

    def plan(self, layout: BatchLayout, shape: AttentionShape, null_block: int) -> _Plan:
        """Groups of decodes and tiles of chunks, with the indices and masks of each."""
        decodes = sorted((row for row in layout.rows if row.num_queries == 1), key=_by_keys, reverse=True)
        groups: list[list[Row]] = []
        for row in decodes:
            if not groups or row.num_keys < _MIN_FILL * groups[-1][0].num_keys:
                groups.append([])
            groups[-1].append(row)
        triangles: dict[int, torch.Tensor] = {}
        return _Plan(
            [_plan_decodes(group, shape, layout, null_block) for group in groups],
            [_plan_chunk(row, shape, layout, null_block, triangles) for row in layout.rows if row.num_queries > 1],
        )

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layout: BatchLayout) -> None:
        """Clear what former owners left in blocks newly begun, then store at the slots."""
        cache.clear(layout.stale_blocks)
        cache.store(layout.slots, key, value)

    def attend(
        self,
        query: torch.Tensor,
        cache: KVCache,
        plan: _Plan,
        shape: AttentionShape,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        """Group by group, then row by row."""
        heads = shape.num_kv_heads
        scaled = query * shape.scaling
        for group in plan.decodes:
            n = group.rows.numel()
            key, value = (_gather(paged, group.blocks, n) for paged in (cache.keys, cache.values))
            queries = scaled.index_select(1, group.rows).unflatten(0, (heads, -1)).transpose(1, 2)
            mixed = _attend(queries.unsqueeze(3), key, value, group.mask, shape, sinks)
            output.index_copy_(0, group.rows, mixed.squeeze(3).transpose(0, 1).flatten(1, 2))
        for chunk in plan.chunks:
            key, value = (_gather(paged, chunk.blocks, 1) for paged in (cache.keys, cache.values))
            for tile in chunk.tiles:
                keys = slice(tile.first_key, tile.end_key)
                queries = scaled[:, tile.start : tile.stop].unflatten(0, (heads, -1)).unsqueeze(1)
                mixed = _attend(queries, key[:, :, keys], value[:, :, keys], tile.mask, shape, sinks)
                output[tile.start : tile.stop] = mixed.squeeze(1).flatten(0, 1).transpose(0, 1)


def _by_keys(row: Row) -> int:
    return row.num_keys


def _plan_decodes(group: list[Row], shape: AttentionShape, layout: BatchLayout, null_block: int) -> _Decodes:
    block_size = layout.block_size
    tables, ends, firsts = [], [], []
    for row in group:
        first_key = shape.reach.first_key(row.num_keys - 1)
        first_block = first_key // block_size
        tables.append(row.block_table[first_block : -(-row.num_keys // block_size)])
        ends.append(row.num_keys - first_block * block_size)
        firsts.append(first_key - first_block * block_size)
    num_blocks = max(len(table) for table in tables)
    blocks = [block for table in tables for block in table + [null_block] * (num_blocks - len(table))]
    rows, blocks_, ends_, firsts_ = upload_lists([[row.start for row in group], blocks, ends, firsts], layout.device)
    slots = torch.arange(num_blocks * block_size, device=layout.device)
    seen = (slots < ends_.unsqueeze(1)) & (slots >= firsts_.unsqueeze(1))
    return _Decodes(rows, _of_all_heads(blocks_, shape, null_block), _as_mask(seen, shape)[:, None, None])


def _plan_chunk(
    row: Row, shape: AttentionShape, layout: BatchLayout, null_block: int, triangles: dict[int, torch.Tensor]
) -> _Chunk:
    block_size, reach = layout.block_size, shape.reach
    first_block = reach.first_key(row.first_position) // block_size
    (blocks,) = upload_lists([row.block_table[first_block : -(-row.num_keys // block_size)]], layout.device)
    step = max(16, min(_TILE_QUERIES, _MAX_TILE_ELEMENTS // row.num_keys))
    tiles = []
    for offset in range(0, row.num_queries, step):
        stop = min(row.num_queries, offset + step)
        first_position, end = row.first_position + offset, row.first_position + stop
        first_key = reach.first_key(first_position)
        if reach == Reach():
            mask = triangles.get(stop - offset)
            if mask is None:
                mask = triangles[stop - offset] = _tile_mask(0, 0, stop - offset, shape, layout)
        else:
            mask = _tile_mask(first_key, first_position, end, shape, layout)
        gathered_from = first_block * block_size
        tiles.append(_Tile(row.start + offset, row.start + stop, first_key - gathered_from, end - gathered_from, mask))
    return _Chunk(_of_all_heads(blocks, shape, null_block), tiles)


def _tile_mask(
    first_key: int, first_position: int, end: int, shape: AttentionShape, layout: BatchLayout
) -> torch.Tensor:
    positions = torch.arange(first_position, end, device=layout.device).unsqueeze(1)
    keys = torch.arange(first_key, end, device=layout.device)
    return _as_mask((keys <= positions) & (keys >= shape.reach.first_keys(positions)), shape)


def _as_mask(seen: torch.Tensor, shape: AttentionShape) -> torch.Tensor:
    return torch.zeros(seen.shape, dtype=shape.dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


def _of_all_heads(blocks: torch.Tensor, shape: AttentionShape, null_block: int) -> torch.Tensor:
    """Indices of the blocks of head 0, then of head 1 and so on, in the cache flattened over heads and blocks."""
    heads = torch.arange(shape.num_kv_heads, device=blocks.device).unsqueeze(1)
    return (heads * (null_block + 1) + blocks).flatten()


def _gather(paged: torch.Tensor, blocks: torch.Tensor, n: int) -> torch.Tensor:
    """`[num_kv_heads, n, tokens, size]` of `n` block tables of equal length."""
    gathered = paged.flatten(0, 1).index_select(0, blocks)
    return gathered.view(paged.shape[0], n, -1, paged.shape[3])


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    shape: AttentionShape,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """`[kv heads, n, queries per kv head, positions, size]` of such queries, already scaled.

    Keys and values are `[kv heads, n, keys, size]`; `mask` is added to the scores of the last keys.
    """
    scores = torch.matmul(query.flatten(2, 3), key.transpose(2, 3)).unflatten(2, query.shape[2:4])
    if shape.softcap is not None:
        scores = torch.tanh(scores.float() / shape.softcap) * shape.softcap
    scores[..., -mask.shape[-1] :] += mask
    if sinks is not None:
        sink_scores = sinks.to(scores.dtype).view(shape.num_kv_heads, 1, -1, 1, 1)
        scores = torch.cat([scores, sink_scores.expand(*scores.shape[:4], 1)], dim=-1)
    weights = scores.softmax(-1).to(value.dtype)
    if sinks is not None:
        weights = weights[..., :-1]
    return torch.matmul(weights.flatten(2, 3), value).unflatten(2, query.shape[2:4])
