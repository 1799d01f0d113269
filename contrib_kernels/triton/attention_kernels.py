"""Paged attention on the GPU: one program per item of work and key head, and one per cut decode to merge its parts.

The rows of an item's products are its queries times the query heads that share the key head, so that each
key and value is loaded once for all of them. Keys are walked a tile at a time with a running maximum
(online softmax, as in FlashAttention); a key is looked up in the block table one by one, which is why any
block size will do. Sums and softmax are float32, powers are of two.
"""

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend_items(
    query,  # [num_heads, tokens, key_size], by these strides
    query_head_stride,
    query_token_stride,
    keys,  # [num_kv_heads, blocks, block_size, key_size]; heads by this stride
    key_head_stride,
    values,  # [num_kv_heads, blocks, block_size, value_size]
    value_head_stride,
    output,  # [tokens, num_heads, value_size]; tokens by this stride
    output_token_stride,
    parts,  # float32 [parts, num_heads, value_size + 2]: weighted sum of values, maximum, sum of weights
    sinks,  # float32 [num_heads] or None
    items,  # int32 [items, 8], see Item
    tables,  # int32, all block tables
    scaling,
    softcap: tl.constexpr,  # or None
    window: tl.constexpr,  # or None
    chunk: tl.constexpr,  # or None
    group: tl.constexpr,  # query heads of a key head
    num_heads: tl.constexpr,
    key_size: tl.constexpr,
    value_size: tl.constexpr,
    block_size: tl.constexpr,
    num_rows: tl.constexpr,  # queries of an item times group, padded; powers of two from here on, at least 16
    tile_keys: tl.constexpr,
    key_width: tl.constexpr,  # size, padded
    value_width: tl.constexpr,
):
    """Attention of item `program_id(0)`, key head `program_id(1)`: whole, or a part of it.

    Loads `(key_size + value_size) * itemsize` bytes and takes `2 * num_rows * (key_width + value_width)`
    operations for a key, most of them for nothing where a decode fills `group` of `num_rows` rows: there
    the bytes are the cost.
    """
    item = items + tl.program_id(0) * 8
    first_query = tl.load(item)
    num_queries = tl.load(item + 1)
    first_position = tl.load(item + 2)
    first_key = tl.load(item + 3)
    end_key = tl.load(item + 4)
    table = tables + tl.load(item + 5)
    part = tl.load(item + 6)
    kv_head = tl.program_id(1).to(tl.int64)  # times a stride: the cache is larger than 32 bits can count

    row = tl.arange(0, num_rows)
    offset = row // group
    head = kv_head * group + row % group
    token = (first_query + offset).to(tl.int64)
    position = first_position + offset
    exists = offset < num_queries
    key_lane = tl.arange(0, key_width)
    value_lane = tl.arange(0, value_width)
    states = tl.load(
        query + head[:, None] * query_head_stride + token[:, None] * query_token_stride + key_lane[None, :],
        mask=exists[:, None] & (key_lane < key_size)[None, :],
        other=0.0,
    )
    best = tl.full([num_rows], float("-inf"), tl.float32)
    total = tl.zeros([num_rows], tl.float32)
    mixed = tl.zeros([num_rows, value_width], tl.float32)
    for start in range(first_key, end_key, tile_keys):
        at = start + tl.arange(0, tile_keys)
        written = at < end_key
        block = tl.load(table + at // block_size, mask=written, other=0)
        slot = block.to(tl.int64) * block_size + at % block_size
        key = tl.load(
            keys + kv_head * key_head_stride + slot[None, :] * key_size + key_lane[:, None],
            mask=written[None, :] & (key_lane < key_size)[:, None],
            other=0.0,
        )
        scores = tl.dot(states, key, input_precision="ieee") * scaling
        if softcap is not None:
            scores = softcap * (2.0 / (1.0 + tl.exp2(scores * (-2.0 * _LOG2E / softcap))) - 1.0)
        seen = written[None, :] & (at[None, :] <= position[:, None])
        if window is not None:
            seen &= at[None, :] > position[:, None] - window
        if chunk is not None:
            seen &= at[None, :] >= position[:, None] // chunk * chunk
        scores = tl.where(seen, scores * _LOG2E, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen no key yet
        weights = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(best - base)
        value = tl.load(
            values + kv_head * value_head_stride + slot[:, None] * value_size + value_lane[None, :],
            mask=written[:, None] & (value_lane < value_size)[None, :],
            other=0.0,
        )
        mixed = mixed * rescale[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        best = higher

    stored = exists[:, None] & (value_lane < value_size)[None, :]
    if part < 0:
        if sinks is not None:
            sink = tl.load(sinks + head) * _LOG2E
            higher = tl.maximum(best, sink)
            rescale = tl.exp2(best - higher)
            mixed = mixed * rescale[:, None]
            total = total * rescale + tl.exp2(sink - higher)
        mixed = mixed / total[:, None]
        place = output + token[:, None] * output_token_stride + head[:, None] * value_size + value_lane[None, :]
        tl.store(place, mixed.to(output.dtype.element_ty), mask=stored)
    else:
        mine = parts + (part * num_heads + head) * (value_size + 2)
        tl.store(mine[:, None] + value_lane[None, :], mixed, mask=stored)
        tl.store(mine + value_size, best, mask=exists)
        tl.store(mine + value_size + 1, total, mask=exists)


@triton.jit
def merge_parts(
    output,  # as above
    output_token_stride,
    parts,
    sinks,
    merges,  # int32 [merges, 4], see Merge
    num_heads: tl.constexpr,
    value_size: tl.constexpr,
    value_width: tl.constexpr,
):
    """Attention of the decode of merge `program_id(0)`, query head `program_id(1)`.

    Loads `4 * (value_size + 2)` bytes and takes about `2 * value_size` operations a part.
    """
    merge = merges + tl.program_id(0) * 4
    token = tl.load(merge).to(tl.int64)
    first_part = tl.load(merge + 1)
    num_parts = tl.load(merge + 2)
    head = tl.program_id(1)
    lane = tl.arange(0, value_width)
    mixed = tl.zeros([value_width], tl.float32)
    if sinks is not None:
        best = tl.load(sinks + head) * _LOG2E
        total = tl.full([], 1.0, tl.float32)
    else:
        best = tl.full([], float("-inf"), tl.float32)
        total = tl.full([], 0.0, tl.float32)
    for part in range(first_part, first_part + num_parts):
        place = parts + (part * num_heads + head) * (value_size + 2)
        part_best = tl.load(place + value_size)
        higher = tl.maximum(best, part_best)
        rescale = tl.exp2(best - higher)
        part_scale = tl.exp2(part_best - higher)
        mixed = mixed * rescale + tl.load(place + lane, mask=lane < value_size, other=0.0) * part_scale
        total = total * rescale + tl.load(place + value_size + 1) * part_scale
        best = higher
    place = output + token * output_token_stride + head * value_size + lane
    tl.store(place, (mixed / total).to(output.dtype.element_ty), mask=lane < value_size)
