"""The built library as seen from Python: its functions, and the structures that some of them take."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p

import torch

from contrib_kernels.cpu.build import Build

_DTYPES = {torch.float32: 0, torch.bfloat16: 1}
WEIGHT_FORMATS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}


class AttentionCall(ctypes.Structure):
    """As in `src/attention.h`."""

    _fields_ = [
        ("query", c_void_p),
        ("query_head_stride", c_int64),
        ("query_token_stride", c_int64),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_head_stride", c_int64),
        ("value_head_stride", c_int64),
        ("output", c_void_p),
        ("output_token_stride", c_int64),
        ("sinks", c_void_p),
        ("items", c_void_p),
        ("merges", c_void_p),
        ("tables", c_void_p),
        ("parts", c_void_p),
        *((name, c_int32) for name in ("num_items", "num_merges", "num_heads", "num_kv_heads", "key_size")),
        *((name, c_int32) for name in ("value_size", "block_size", "window", "chunk", "is_bf16")),
        ("scaling", c_float),
        ("softcap", c_float),
    ]


class RotateCall(ctypes.Structure):
    """As in `src/elementwise.h`."""

    _fields_ = [
        ("joint", c_void_p),
        ("joint_stride", c_int64),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("angle_stride", c_int64),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_head_stride", c_int64),
        ("value_head_stride", c_int64),
        ("slots", c_void_p),
        ("num_tokens", c_int64),
        *((name, c_int32) for name in ("num_heads", "num_kv_heads", "size", "rotary_size")),
        *((name, c_int32) for name in ("norm_spans_heads", "is_bf16")),
        ("epsilon", c_float),
    ]


class LinearLayer(ctypes.Structure):
    """As in `src/linear.h`."""

    _fields_ = [
        *((name, c_void_p) for name in ("factors", "weight", "scales", "offsets", "bias")),
        *((name, c_int32) for name in ("inputs", "outputs", "block_outputs", "padded_inputs", "format")),
    ]


class StackedLayer(ctypes.Structure):
    """As in `src/stack.h`."""

    _fields_ = [
        *((name, LinearLayer) for name in ("joint", "output", "gate_up", "down")),
        ("before_attention", c_void_p),
        ("before_mlp", c_void_p),
        ("attention_epsilon", c_float),
        ("mlp_epsilon", c_float),
        ("activation", c_int32),
        ("plan", c_int32),
        ("heads", RotateCall),
    ]


class StackCall(ctypes.Structure):
    """As in `src/stack.h`."""

    _fields_ = [
        ("layers", POINTER(StackedLayer)),
        ("plans", POINTER(POINTER(AttentionCall))),
        *((name, c_void_p) for name in ("states", "out", "residual", "normed", "answer", "wide", "narrow")),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("angle_stride", c_int64),
        ("slots", c_void_p),
        *((name, c_int32) for name in ("num_layers", "num_rows", "num_tokens", "width", "rotary_size", "is_bf16")),
    ]


class Library:
    """Functions of a built library, with the types of their arguments. Raises OSError where it can't be loaded."""

    def __init__(self, build: Build) -> None:
        self.name = f"cpu-{build.variant.name}"
        self.identity = build.identity
        functions = ctypes.CDLL(str(build.file))
        self.lanes = int(functions.jitney_lanes())
        self.attend = _typed(functions.jitney_attend, POINTER(AttentionCall))
        self.rotate_and_write = _typed(functions.jitney_rotate_and_write, POINTER(RotateCall))
        self.write_slots = _typed(
            functions.jitney_write_slots,
            *(c_void_p, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64),
        )
        self.rms_norm = _typed(
            functions.jitney_rms_norm,
            *(c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_int, c_float, c_int),
        )
        self.gate = _typed(functions.jitney_gate, c_void_p, c_void_p, c_int64, c_int, c_int, c_int)
        self.best_tokens = _typed(functions.jitney_best_tokens, *(c_void_p, c_int64, c_void_p, c_int64, c_int, c_int))
        self.few_rows = _typed(functions.jitney_few_rows, *(c_void_p,) * 4, *(c_int,) * 6)
        self.float_rows = _typed(functions.jitney_float_rows, POINTER(LinearLayer), c_void_p, c_void_p, c_int64)
        self.run_stack = _typed(functions.jitney_run_stack, POINTER(StackCall))
        self.has_few_rows = bool(functions.jitney_has_few_rows())
        self.few_rows_int8 = _typed(functions.jitney_few_rows_int8, *(c_void_p,) * 7, *(c_int,) * 7)
        self.has_few_rows_int8 = bool(functions.jitney_has_few_rows_int8())
        self.quantize_rows = _typed(functions.jitney_quantize_rows, *(c_void_p,) * 4, *(c_int64, c_int, c_int))
        self.rescale_rows = _typed(
            functions.jitney_rescale_rows, *(c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int, c_int)
        )


def serves(dtype: torch.dtype) -> bool:
    """Whether the kernels compute in this format."""
    return dtype in _DTYPES


def is_bf16(dtype: torch.dtype) -> int:
    """The number by which the library knows the format."""
    return _DTYPES[dtype]


def _typed(function: ctypes._NamedFuncPointer, *arguments: type) -> ctypes._NamedFuncPointer:
    function.argtypes = arguments
    function.restype = None
    return function
