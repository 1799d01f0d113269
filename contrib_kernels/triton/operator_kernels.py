"""Norms and gates on the GPU: every element read once, computed in float32, written once."""

import triton
import triton.language as tl


@triton.jit
def norm_rows(
    states,  # [rows, width], contiguous like all here
    residual,  # float32 [rows, width], which `states` are added to, or None
    weight,  # float32 [width]
    normed,  # [rows, width]
    width,
    epsilon,
    padded_width: tl.constexpr,  # a power of two
):
    """Row `program_id(0)` of `states / rms(states) * weight`, of the sum with `residual` where there is one.

    `2 * itemsize` bytes and about 4 operations an element; with a residual, `2 * itemsize + 8` and 5.
    """
    row = tl.program_id(0).to(tl.int64) * width
    lane = tl.arange(0, padded_width)
    exists = lane < width
    row_states = tl.load(states + row + lane, mask=exists, other=0.0).to(tl.float32)
    if residual is not None:
        row_states += tl.load(residual + row + lane, mask=exists, other=0.0)
        tl.store(residual + row + lane, row_states, mask=exists)
    scale = tl.rsqrt(tl.sum(row_states * row_states, 0) / width + epsilon)
    row_normed = row_states * scale * tl.load(weight + lane, mask=exists, other=0.0)
    tl.store(normed + row + lane, row_normed.to(normed.dtype.element_ty), mask=exists)


@triton.jit
def gate_rows(
    joint,  # [rows, 2 * width], contiguous like all here
    gated,  # [rows, width]
    width,
    activation: tl.constexpr,  # one of ACTIVATIONS
    tile_width: tl.constexpr,  # a power of two
):
    """`activation(left half) * right half` of row `program_id(0)`, tile `program_id(1)`.

    `3 * itemsize` bytes and about 20 operations an element of the result.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * tile_width + tl.arange(0, tile_width)
    exists = lane < width
    left = tl.load(joint + row * 2 * width + lane, mask=exists, other=0.0).to(tl.float32)
    right = tl.load(joint + row * 2 * width + width + lane, mask=exists, other=0.0).to(tl.float32)
    if activation == "silu":
        activated = left * tl.sigmoid(left)
    elif activation == "gelu_tanh":  # x * (1 + tanh(y)) / 2 is x * sigmoid(2 * y)
        activated = left * tl.sigmoid(1.5957691216057308 * (left + 0.044715 * left * left * left))
    else:
        activated = 0.5 * left * (1.0 + tl.erf(left * 0.7071067811865476))
    tl.store(gated + row * width + lane, (activated * right).to(gated.dtype.element_ty), mask=exists)
