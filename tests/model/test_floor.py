"""The linear table of a loaded model is that of its own layers, in the form that it computes them in."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from torch import nn

from core_engine.model.floor import measure_linears
from core_engine.model.packed_linear import output_layer
from core_engine.model.packing import LINEAR_LAYERS
from tests.model.loading import MakeDirectory, load


@pytest.mark.parametrize("kernels", [("torch",), None], ids=["plain", "packed"])
def test_every_linear_layer_of_the_model_is_measured(
    model_directory: MakeDirectory, kernels: tuple[str, ...] | None
) -> None:
    model = load(model_directory(), kernels=kernels).model  # type: ignore[attr-defined]
    rows_seen: dict[nn.Module, set[int]] = defaultdict(set)

    def note(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        rows_seen[layer].add(len(inputs[0]))

    layers = [module for module in model.modules() if isinstance(module, LINEAR_LAYERS)]
    for layer in layers:
        layer.register_forward_pre_hook(note)
    table = measure_linears(model, repeats=1)
    assert output_layer(model) in layers
    assert set(rows_seen) == set(layers)
    assert all(rows == set(table.body) == set(table.head) for rows in rows_seen.values())
    assert min([*table.body.values(), *table.head.values()]) > 0
