"""CpuLayerStack: all layers of a pass of few rows in one call of the C++ library."""

from __future__ import annotations

from ctypes import POINTER, byref, pointer
from typing import Any

import torch

from contrib_kernels.cpu.attention import CpuAttention
from contrib_kernels.cpu.float_rows import FloatRowsLinear
from contrib_kernels.cpu.int8 import Int8Linear
from contrib_kernels.cpu.library import (
    AttentionCall,
    Library,
    LinearLayer,
    RotateCall,
    StackCall,
    StackedLayer,
    is_bf16,
)
from contrib_kernels.cpu.operators import MAX_SIZE, CpuOperators
from contrib_kernels.cpu.rows import FewRowsLinear
from core_engine.model.kernels import PlainLayer, RunLayers
from core_engine.model.kv_cache import KVCache
from core_engine.model.operators import ACTIVATIONS, JointHeads

_Linear = FewRowsLinear | Int8Linear | FloatRowsLinear
# bfloat16 products are for eight rows at most; in float32 the time there and back is nothing beyond some sixty.
_MAX_ROWS = {torch.bfloat16: 8, torch.float32: 64}


class CpuLayerStack:
    """LayerStack for bfloat16 and float32: the library's own kernels in the usual order.

    So the results are those of single calls: nothing is computed or read that the kernels by themselves wouldn't. What
    is saved is some nine calls a layer.
    """

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def build(self, layers: list[PlainLayer]) -> RunLayers | None:
        """See LayerStack; None where a kernel isn't of this package or layers are of several formats."""
        dtype = layers[0].cache.keys.dtype
        if not all(_is_ours(layer, dtype) for layer in layers):
            return None
        return _Run(self._library, layers, dtype)


class _Run:
    """The layers as the library has them, filled in once, and room for what they hand to one another."""

    def __init__(self, library: Library, layers: list[PlainLayer], dtype: torch.dtype) -> None:
        self.max_rows = _MAX_ROWS[dtype]
        self._run_stack = library.run_stack
        self._layers = layers  # keeps alive what the structures point to
        structures = (StackedLayer * len(layers))(*map(_structure, layers))
        width = layers[0].before_attention[0].numel()
        wide = max(max(layer.joint.outputs, layer.gate_up.outputs) for layer in structures)
        narrow = max(max(layer.output.inputs, layer.down.inputs) for layer in structures)
        self._residual = torch.empty(self.max_rows, width)
        self._room = [torch.empty(self.max_rows, size, dtype=dtype) for size in (width, width, wide, narrow)]
        normed, answer, wide_rows, narrow_rows = (room.data_ptr() for room in self._room)
        self._call = StackCall(
            layers=structures,
            residual=self._residual.data_ptr(),
            normed=normed,
            answer=answer,
            wide=wide_rows,
            narrow=narrow_rows,
            num_layers=len(layers),
            width=width,
            is_bf16=is_bf16(dtype),
        )
        self._plans = (POINTER(AttentionCall) * (1 + max(layer.plan for layer in layers)))()
        self._call.plans = self._plans

    def __call__(
        self, states: torch.Tensor, plans: list[Any], angles: tuple[torch.Tensor, torch.Tensor], slots: torch.Tensor
    ) -> torch.Tensor:
        """See RunLayers."""
        states = states.contiguous()
        out = torch.empty_like(states)
        cosines, sines = angles
        call = self._call
        for place, plan in enumerate(plans):
            self._plans[place] = pointer(plan.call)
        call.states, call.out = states.data_ptr(), out.data_ptr()
        call.cosines, call.sines, call.angle_stride = cosines.data_ptr(), sines.data_ptr(), cosines.stride(0)
        call.rotary_size = cosines.shape[1]
        call.slots, call.num_tokens, call.num_rows = slots.data_ptr(), slots.shape[0], states.shape[1]
        self._run_stack(byref(call))
        return out


def _is_ours(layer: PlainLayer, dtype: torch.dtype) -> bool:
    linears = (layer.joint, layer.output, layer.gate_up, layer.down)
    kinds = FloatRowsLinear if dtype == torch.float32 else FewRowsLinear | Int8Linear
    return (
        dtype in _MAX_ROWS
        and all(isinstance(linear, kinds) and linear.out_dtype == dtype for linear in linears)
        and isinstance(layer.operators, CpuOperators)
        and isinstance(layer.attention, CpuAttention)
        and layer.cache.keys.dtype == dtype
        and layer.heads.size <= MAX_SIZE
    )


def _structure(layer: PlainLayer) -> StackedLayer:
    (attention_norm, attention_epsilon), (mlp_norm, mlp_epsilon) = layer.before_attention, layer.before_mlp
    return StackedLayer(
        joint=_parameters(layer.joint),
        output=_parameters(layer.output),
        gate_up=_parameters(layer.gate_up),
        down=_parameters(layer.down),
        before_attention=attention_norm.data_ptr(),
        before_mlp=mlp_norm.data_ptr(),
        attention_epsilon=attention_epsilon,
        mlp_epsilon=mlp_epsilon,
        activation=ACTIVATIONS.index(layer.activation),
        plan=layer.plan,
        heads=_rotation(layer.heads, layer.cache),
    )


def _parameters(linear: object) -> LinearLayer:
    assert isinstance(linear, _Linear)
    return linear.parameters


def _rotation(heads: JointHeads, cache: KVCache) -> RotateCall:
    return RotateCall(
        query_norm=None if heads.query_norm is None else heads.query_norm.data_ptr(),
        key_norm=None if heads.key_norm is None else heads.key_norm.data_ptr(),
        keys=cache.keys.data_ptr(),
        values=cache.values.data_ptr(),
        key_head_stride=cache.keys.stride(0),
        value_head_stride=cache.values.stride(0),
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        size=heads.size,
        norm_spans_heads=heads.norm_spans_heads,
        is_bf16=is_bf16(cache.keys.dtype),
        epsilon=heads.epsilon,
    )
