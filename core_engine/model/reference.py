"""The reference attention: plain torch, any shape, any device; slower than a kernel made for the purpose.

Decodes of similar length attend together: their blocks are gathered into one padded tensor, and the
query heads that share a key head take the place of the query positions. Every longer row attends
by itself. What a row may not see is a mask, built once in a pass for all layers of the same reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from core_engine.model.kernels import AttentionShape, KVCache
from core_engine.model.layout import BatchLayout, Reach, Row, upload_lists

_MIN_FILL = 0.6  # of the longest decode of a group; shorter ones start another group
_MAX_MASK_ELEMENTS = 1 << 20  # longer chunks are cut into tiles of queries


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Rows of one query each, padded to the blocks of the longest."""

    rows: torch.Tensor  # [n] flat indices
    blocks: torch.Tensor  # [n * num_blocks]
    num_blocks: int
    mask: torch.Tensor  # [n, 1, 1, num_blocks * block_size]: 0 where seen, else -inf


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Consecutive queries `start` to `stop` of one row over its blocks, from the first one seen on."""

    start: int
    stop: int
    blocks: torch.Tensor  # [num_blocks]
    num_keys: int  # from the first gathered one on
    mask: torch.Tensor | None  # [queries, num_keys]; None: as many keys as queries, each sees up to itself


@dataclass(frozen=True, slots=True)
class _Plan:
    decodes: list[_Decodes]
    chunks: list[_Chunk]


class ReferenceAttention:
    """AttentionKernel by gathering blocks and calling torch."""

    name = "torch"

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
        return _Plan(
            [_plan_decodes(group, shape, layout, null_block) for group in groups],
            [chunk for row in layout.rows if row.num_queries > 1 for chunk in _plan_chunks(row, shape, layout)],
        )

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layout: BatchLayout) -> None:
        """Clear what former owners left in blocks newly begun, then store at the slots."""
        for new, paged in ((key, cache.keys), (value, cache.values)):
            if layout.stale_blocks.numel():
                paged.index_fill_(0, layout.stale_blocks, 0)
            paged.flatten(0, 1).index_copy_(0, layout.slots, new)

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
        heads = (shape.num_kv_heads, shape.num_heads // shape.num_kv_heads)
        for group in plan.decodes:
            n = group.rows.numel()
            key, value = (_gather(paged, group.blocks, n) for paged in (cache.keys, cache.values))
            grouped = query.index_select(0, group.rows).view(n, *heads, -1)
            sink_logits = None if sinks is None else sinks.view(1, *heads, 1)
            mixed = _attend(grouped, key, value, group.mask, shape, sink_logits)
            output.index_copy_(0, group.rows, mixed.reshape(n, shape.num_heads, -1))
        for chunk in plan.chunks:
            key, value = (
                _gather(paged, chunk.blocks, 1)[:, :, : chunk.num_keys] for paged in (cache.keys, cache.values)
            )
            queries = query[chunk.start : chunk.stop].transpose(0, 1).unsqueeze(0)
            sink_logits = None if sinks is None else sinks.view(1, -1, 1, 1)
            mixed = _attend(queries, key, value, chunk.mask, shape, sink_logits)
            output[chunk.start : chunk.stop] = mixed[0].transpose(0, 1)


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
    return _Decodes(rows, blocks_, num_blocks, _as_mask(seen, shape.dtype)[:, None, None])


def _plan_chunks(row: Row, shape: AttentionShape, layout: BatchLayout) -> list[_Chunk]:
    block_size, reach = layout.block_size, shape.reach
    if row.first_position == 0 and reach == Reach() and not _needs_scores(shape):
        (blocks,) = upload_lists([row.block_table[: -(-row.num_keys // block_size)]], layout.device)
        return [_Chunk(row.start, row.start + row.num_queries, blocks, row.num_keys, None)]
    tile = max(16, _MAX_MASK_ELEMENTS // row.num_keys)
    chunks = []
    for offset in range(0, row.num_queries, tile):
        stop = min(row.num_queries, offset + tile)
        first_position, end = row.first_position + offset, row.first_position + stop
        first_block = reach.first_key(first_position) // block_size
        (blocks,) = upload_lists([row.block_table[first_block : -(-end // block_size)]], layout.device)
        positions = torch.arange(first_position, end, device=layout.device).unsqueeze(1)
        keys = torch.arange(first_block * block_size, end, device=layout.device)
        seen = (keys <= positions) & (keys >= reach.first_keys(positions))
        mask = _as_mask(seen, shape.dtype)
        chunks.append(_Chunk(row.start + offset, row.start + stop, blocks, mask.shape[1], mask))
    return chunks


def _needs_scores(shape: AttentionShape) -> bool:
    """Whether something is done to the scores that torch's own attention knows nothing of."""
    return shape.softcap is not None or shape.has_sinks


def _as_mask(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


def _gather(paged: torch.Tensor, blocks: torch.Tensor, n: int) -> torch.Tensor:
    """`[n, num_kv_heads, tokens, size]` of the blocks, `n` tables of equal length one after another."""
    gathered = paged.index_select(0, blocks)
    return gathered.view(n, -1, *gathered.shape[2:]).transpose(1, 2)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    shape: AttentionShape,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """`[n, heads, queries, size]`; a multiple of the key's heads may query, `mask` is added to the scores."""
    grouped = query.shape[1] != key.shape[1]
    if not _needs_scores(shape):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=shape.scaling, enable_gqa=grouped
        )
    if grouped:
        group_size = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group_size, 1), value.repeat_interleave(group_size, 1)
    scores = torch.matmul(query.float(), key.float().transpose(2, 3)) * shape.scaling
    if shape.softcap is not None:
        scores = torch.tanh(scores / shape.softcap) * shape.softcap
    scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(*scores.shape[:3], 1)], dim=-1)
    weights = scores.softmax(-1)
    if sinks is not None:
        weights = weights[..., :-1]
    return torch.matmul(weights, value.float()).to(query.dtype)
