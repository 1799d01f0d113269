"""Keys and values to their slots: as they come, or normed and rotated on the way. One token a program.

Offsets into the cache are 64-bit: it has more elements than 32 bits can count.
"""

import triton
import triton.language as tl


@triton.jit
def write_slots(
    key,  # [num_kv_heads, tokens, key_size], by these strides
    key_head_stride,
    key_token_stride,
    value,  # [num_kv_heads, tokens, value_size]
    value_head_stride,
    value_token_stride,
    keys,  # [num_kv_heads, blocks, block_size, key_size]; heads by this stride
    keys_head_stride,
    values,
    values_head_stride,
    slots,  # int64 [tokens]
    num_kv_heads: tl.constexpr,
    key_size: tl.constexpr,
    value_size: tl.constexpr,
    num_heads_width: tl.constexpr,  # padded to powers of two
    key_width: tl.constexpr,
    value_width: tl.constexpr,
):
    """Copy token `program_id(0)`: `2 * num_kv_heads * (key_size + value_size) * itemsize` bytes, no operations."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    head = tl.arange(0, num_heads_width).to(tl.int64)[:, None]
    lane = tl.arange(0, key_width)[None, :]
    exists = (head < num_kv_heads) & (lane < key_size)
    states = tl.load(key + head * key_head_stride + token * key_token_stride + lane, mask=exists)
    tl.store(keys + head * keys_head_stride + slot * key_size + lane, states, mask=exists)
    lane = tl.arange(0, value_width)[None, :]
    exists = (head < num_kv_heads) & (lane < value_size)
    states = tl.load(value + head * value_head_stride + token * value_token_stride + lane, mask=exists)
    tl.store(values + head * values_head_stride + slot * value_size + lane, states, mask=exists)


@triton.jit
def rotate_to_slots(
    joint,  # [tokens, (num_heads + 2 * num_kv_heads) * size]; tokens by this stride
    joint_token_stride,
    cosines,  # [tokens, rotary_size]; tokens by this stride
    sines,
    angle_stride,
    query_norm,  # float32 [size], or [num_heads * size] where norms span heads, or None
    key_norm,
    epsilon,
    query,  # [tokens, num_heads, size]
    keys,  # [num_kv_heads, blocks, block_size, size]; heads by this stride
    keys_head_stride,
    values,
    values_head_stride,
    slots,  # int64 [tokens]
    num_heads: tl.constexpr,
    num_kv_heads: tl.constexpr,
    size: tl.constexpr,
    rotary_size: tl.constexpr,
    norm_spans_heads: tl.constexpr,
    num_heads_width: tl.constexpr,  # padded to powers of two
    num_kv_heads_width: tl.constexpr,
    width: tl.constexpr,
):
    """Of token `program_id(0)`, by `program_id(1)`: 0, queries normed and rotated; 1, keys too, to the slot; 2, values.

    `2 * (num_heads + 2 * num_kv_heads) * size * itemsize` bytes and about 3 operations an element, 4
    more with a norm. An element's partner in the rotation is loaded a second time, which the GPU's cache serves.
    """
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    states = joint + token * joint_token_stride
    angles = token * angle_stride
    # What branches leave behind must agree in type, so each leaves nothing.
    if tl.program_id(1) == 0:
        _rotate_heads(
            states, query + token * num_heads * size, size, cosines + angles, sines + angles, query_norm, epsilon,
            num_heads, size, rotary_size, norm_spans_heads, num_heads_width, width,
        )  # fmt: skip
    elif tl.program_id(1) == 1:
        _rotate_heads(
            states + num_heads * size, keys + slot * size, keys_head_stride, cosines + angles, sines + angles,
            key_norm, epsilon,
            num_kv_heads, size, rotary_size, norm_spans_heads, num_kv_heads_width, width,
        )  # fmt: skip
    else:
        head = tl.arange(0, num_kv_heads_width).to(tl.int64)[:, None]
        lane = tl.arange(0, width)[None, :]
        exists = (head < num_kv_heads) & (lane < size)
        value = tl.load(states + (num_heads + num_kv_heads + head) * size + lane, mask=exists)
        tl.store(values + head * values_head_stride + slot * size + lane, value, mask=exists)


@triton.jit
def _rotate_heads(
    states,  # [num_heads, size]
    place,  # likewise, heads by this stride
    place_head_stride,
    cosines,  # [rotary_size]
    sines,
    norm,  # or None
    epsilon,
    num_heads: tl.constexpr,
    size: tl.constexpr,
    rotary_size: tl.constexpr,
    norm_spans_heads: tl.constexpr,
    num_heads_width: tl.constexpr,
    width: tl.constexpr,
):
    half: tl.constexpr = rotary_size // 2
    norm_head_stride: tl.constexpr = size if norm_spans_heads else 0
    head = tl.arange(0, num_heads_width).to(tl.int64)[:, None]
    lane = tl.arange(0, width)[None, :]
    exists = (head < num_heads) & (lane < size)
    turns = lane < rotary_size
    partner = tl.where(lane < half, lane + half, lane - half)
    mine = tl.load(states + head * size + lane, mask=exists, other=0.0).to(tl.float32)
    other = tl.load(states + head * size + partner, mask=exists & turns, other=0.0).to(tl.float32)
    if norm is not None:
        if norm_spans_heads:
            scale = tl.rsqrt(tl.sum(mine * mine) / (num_heads * size) + epsilon)
        else:
            scale = tl.rsqrt(tl.sum(mine * mine, 1) / size + epsilon)[:, None]
        weights = norm + head * norm_head_stride
        mine *= scale * tl.load(weights + lane, mask=exists, other=0.0)
        other *= scale * tl.load(weights + partner, mask=exists & turns, other=0.0)
    cosine = tl.load(cosines + lane, mask=turns, other=1.0).to(tl.float32)
    sine = tl.load(sines + lane, mask=turns, other=0.0).to(tl.float32)
    rotated = mine * cosine + tl.where(lane < half, -other, other) * sine
    tl.store(place + head * place_head_stride + lane, rotated.to(place.dtype.element_ty), mask=exists)
