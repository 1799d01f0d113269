"""How long the linear layers of a model take by themselves, and how fast memory is read.

No engine is faster than its products. For the floor they are measured as oneDNN runs them on prepacked weights of the
model's shapes; for a simulation of an engine as that runs them. A measurement is one whole pass over all
layers on random numbers, so that no weight is still in a cache when its turn comes again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.linear_table import LinearTable
from core_engine.model.devices import choose_device, choose_dtype
from core_engine.model.int8_rows import ReferenceInt8Rows
from core_engine.model.packed_linear import PackedLinear, can_pack, output_layer
from core_engine.model.packing import LINEAR_LAYERS
from core_engine.model.quantized_linear import QuantizedLinear, int8_refusal

_Layer = Callable[[torch.Tensor], torch.Tensor]

_GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_READ_BYTES = 1 << 29


class LinearFloor:
    """The linear layers' seconds, the bytes of their weights, and how many bytes of memory are read in a second."""

    def __init__(self, config: EngineConfig, directory: Path, repeats: int = 5) -> None:
        """Measures. `directory` holds the model's config.json; no weight is read."""
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        device = choose_device(config)
        dtype = choose_dtype(config, device)
        body, head = _shapes(directory)
        itemsize = min(dtype.itemsize, _dtype_of_file(directory).itemsize)  # a wider copy says nothing more
        self.weight_bytes = (itemsize if config.quantize is None else 1) * _elements(body) + itemsize * _elements(head)
        multiplies_int8 = config.quantize is not None and int8_refusal(dtype, device) is None
        make = _int8_product if multiplies_int8 else _layer
        self.linear = LinearTable(
            body=_table([(make(shape, dtype, device), shape[1]) for shape in body], dtype, device, repeats),
            head=_table([(_layer(shape, dtype, device), shape[1]) for shape in head], dtype, device, repeats),
        )
        self.read_bytes_per_second = _read_bytes_per_second(repeats)


def measure_linears(model: Any, repeats: int = 5) -> LinearTable:
    """The seconds of a loaded model's own linear layers, in the form that it computes them in."""
    head = output_layer(model)
    layers = [module for module in model.modules() if isinstance(module, LINEAR_LAYERS)]

    def table(is_head: bool) -> dict[int, float]:
        some = [(layer, layer.in_features) for layer in layers if (layer is head) == is_head]
        return _table(some, model.dtype, model.device, repeats)

    return LinearTable(body=table(False), head=table(True))


@torch.inference_mode()
def _read_bytes_per_second(repeats: int) -> float:
    """How fast all threads together read memory in a row: the best of some tries."""
    data = torch.ones(_READ_BYTES // 4, dtype=torch.float32)
    clock = MonotonicClock()
    seconds = []
    for _ in range(repeats):
        began = clock.now()
        data.sum()
        seconds.append(clock.now() - began)
    return _READ_BYTES / min(seconds)


def _shapes(directory: Path) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(outputs, inputs) of every linear layer in order, and of the output layer."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))
    head = model.get_output_embeddings()
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    body = [(module.out_features, module.in_features) for module in layers if module is not head]
    return body, [(module.out_features, module.in_features) for module in layers if module is head]


def _dtype_of_file(directory: Path) -> torch.dtype:
    return AutoConfig.from_pretrained(directory).get_text_config().dtype or torch.float32


def _elements(shapes: list[tuple[int, int]]) -> int:
    return sum(outputs * inputs for outputs, inputs in shapes)


@torch.inference_mode()
def _table(
    layers: list[tuple[_Layer, int]], dtype: torch.dtype, device: torch.device, repeats: int
) -> dict[int, float]:
    """Median seconds of all these layers, each with its number of inputs, by number of rows."""
    clock = MonotonicClock()
    table = {}
    for rows in _GRID:
        inputs = {columns: torch.randn(rows, columns, dtype=dtype, device=device) for _, columns in layers}
        seconds = []
        for _ in range(1 + repeats):
            began = clock.now()
            for layer, columns in layers:
                layer(inputs[columns])
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(clock.now() - began)
        table[rows] = statistics.median(seconds[1:])  # the first prepares the products
    return table


def _layer(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> _Layer:
    outputs, inputs = shape
    layer = nn.Linear(inputs, outputs, bias=False, dtype=dtype, device=device)
    if can_pack(dtype, device):
        return PackedLinear(layer)
    if device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight)
        return lambda states: torch.ops.mkldnn._linear_pointwise(states, packed, None, "none", [], "")
    return layer


def _int8_product(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> _Layer:
    """The product alone, of rows that are there in eight bits; which, matters to no processor."""
    outputs, inputs = shape
    layer = QuantizedLinear(nn.Linear(inputs, outputs, bias=False, dtype=dtype), ReferenceInt8Rows(), dtype)
    return lambda states: layer.product(states.view(torch.uint8)[:, :inputs].contiguous(), dtype)
