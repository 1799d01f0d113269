"""In what form a model's linear layers are computed: by its number format, the processor and the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.model import facts
from core_engine.model.float_linear import FloatLinear, float_linears, unfloat_linears
from core_engine.model.kernels import KernelRegistry
from core_engine.model.packed_linear import PackedLinear, can_pack, pack_linears, unpack_linears
from core_engine.model.quantized_linear import QuantizedLinear, int8_refusal, quantize_linears
from core_engine.model.smoothing import input_peaks
from core_engine.model.tracing import TracedCall, trace_attention

_log = logging.getLogger("jitney.model")

PACKED_LAYERS = (PackedLinear, QuantizedLinear, FloatLinear)
LINEAR_LAYERS = (nn.Linear, *PACKED_LAYERS)  # in whatever form


class Packing(NamedTuple):
    """A form of linear layers: what a probe's verdict depends on, and how a model gets it and gets rid of it.

    What rounds weights can't be undone.
    """

    name: str
    apply: Callable[[Any], None]
    undo: Callable[[Any], None] | None


def packing_for(model: Any, kernels: KernelRegistry, config: EngineConfig) -> Packing | None:
    """The form to be had; None for layers as torch has them. Raises ModelError for int8 that can't be had."""
    dtype, device = model.dtype, torch.device(model.device)
    floats = kernels.float_product if dtype == torch.float32 and device.type == "cpu" else None
    if config.quantize is not None:
        refusal = int8_refusal(dtype, device)
        if refusal is None:
            name = f"{config.quantize} {kernels.int8_rows.name}"
            return Packing(name, lambda model: _quantize(model, kernels, config), None)
        if floats is not None:
            name = f"{config.quantize} weights {floats.name}"
            return Packing(name, lambda model: _round_weights(model, kernels), None)
        raise ModelError(f"quantize '{config.quantize}' can't be had here: {refusal}; leave it out")
    if can_pack(dtype, device):
        rows = kernels.row_product
        name = "oneDNN" if rows is None else f"rows {rows.name}"
        return Packing(name, lambda model: pack_linears(model, rows), unpack_linears)
    if floats is not None:
        return Packing(f"floats {floats.name}", lambda model: float_linears(model, floats), unfloat_linears)
    return None


def trace_packed(model: Any, packing: Packing | None) -> list[TracedCall]:
    """Give linear layers that form, if the model's code allows it, and trace its attention then. Raises ModelError."""
    if packing is None:
        return trace_attention(model)
    packing.apply(model)
    try:
        return trace_attention(model)
    except ModelError as error:
        if packing.undo is None:
            raise ModelError(
                f"{type(model).__name__} can't be quantised, its code reads weights of linear layers by itself "
                f"({error}); leave quantize out"
            ) from error
        packing.undo(model)
    return trace_attention(model)


def _quantize(model: Any, kernels: KernelRegistry, config: EngineConfig) -> None:
    peaks = input_peaks(model, facts.max_model_len(model.config, config))
    num_layers = quantize_linears(model, kernels.int8_rows, peaks)
    _log.info(
        "int8: %d linear layers, rows by %s; the output layer and embeddings stay %s",
        *(num_layers, kernels.int8_rows.name, str(model.dtype).removeprefix("torch.")),
    )
    if can_pack(model.dtype, torch.device(model.device)):
        pack_linears(model, kernels.row_product)  # the output layer


def _round_weights(model: Any, kernels: KernelRegistry) -> None:
    assert kernels.float_product is not None
    num_layers = float_linears(model, kernels.float_product, to_int8=True)
    _log.info(
        "int8: weights of %d linear layers, rows stay float32, by %s: this processor has no units for products of "
        "eight-bit numbers; embeddings stay as they are",
        *(num_layers, kernels.float_product.name),
    )
