"""Tables of float32 models take no memory that they don't need, and give the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core_engine.config import EngineConfig
from core_engine.model.float_embedding import FloatEmbedding
from core_engine.model.float_linear import float_linears, unfloat_linears
from core_engine.model.load import Assembly
from core_engine.model.providers import kernels_for
from core_engine.model.weights import weight_bytes
from tests.equivalence.families import tiny_model
from tests.equivalence.harness import run_mixed
from tests.model.loading import read_weights_of_mlp

PRODUCT = kernels_for("cpu", None).float_product
TOKENS, SIZE = 1100, 24
IDS = torch.tensor([[0, TOKENS - 1, 7, 8], [9, 16, 9, 500]])

pytestmark = pytest.mark.skipif(PRODUCT is None, reason="no compiler to build kernels with")


def table_and_head(*, tied: bool, like_bfloat16: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    table, head = nn.Embedding(TOKENS, SIZE), nn.Linear(SIZE, TOKENS, bias=False)
    for layer in (table, head):
        layer.requires_grad_(False)
        if like_bfloat16:
            layer.weight.data = layer.weight.bfloat16().float()
    if tied:
        head.weight = table.weight
    return nn.Sequential(table, head)


@pytest.mark.parametrize(
    ("tied", "like_bfloat16", "bytes_each"),
    [(True, True, 2), (True, False, 4), (False, True, 2 + 2), (False, False, 4 + 4)],
)
def test_a_table_takes_what_it_needs_and_gives_the_same(tied: bool, like_bfloat16: bool, bytes_each: int) -> None:
    model = table_and_head(tied=tied, like_bfloat16=like_bfloat16)
    expected = model[0](IDS)
    float_linears(model, PRODUCT)
    assert torch.equal(model[0](IDS), expected)
    padded = -(-TOKENS // 32) * 32  # rows of the layer's weight, by the widest vectors
    assert bytes_each * SIZE * TOKENS <= weight_bytes(model) <= bytes_each * SIZE * padded


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_undone_exactly(tied: bool) -> None:
    model = table_and_head(tied=tied)
    table = model[0].weight.clone()
    float_linears(model, PRODUCT)
    unfloat_linears(model)
    assert type(model[0]) is nn.Embedding
    assert torch.equal(model[0].weight, table)
    assert (model[0].weight is model[1].weight) == tied


def test_a_table_is_not_looked_up_in_rounded_weights() -> None:
    model = table_and_head(tied=True)
    expected = model[0](IDS)
    float_linears(model, PRODUCT, to_int8=True)
    assert torch.equal(model[0](IDS), expected)


@pytest.mark.parametrize("tied", [True, False])
def test_what_a_product_reads_wrongly_is_not_taken_from_it(tied: bool) -> None:
    class Wrong:
        name = "wrong"

        def product(self, weight, scales, bias):  # type: ignore[no-untyped-def]
            made = PRODUCT.product(weight, scales, bias)
            made.rows = lambda indices: weight[indices].float() + 1
            return made

    model = table_and_head(tied=tied)
    expected = model[0](IDS)
    float_linears(model, Wrong())
    assert torch.equal(model[0](IDS), expected)


def test_a_weight_that_a_plain_layer_keeps_is_not_held_twice() -> None:
    class Refusing:
        name = "refusing"

        def product(self, weight, scales, bias):  # type: ignore[no-untyped-def]
            return None

    model = table_and_head(tied=True)
    float_linears(model, Refusing())
    assert model[0].weight is model[1].weight


def test_a_table_that_changes_with_look_ups_stays() -> None:
    model = nn.Sequential(nn.Embedding(4, 2, max_norm=1.0))
    float_linears(model, PRODUCT)
    assert type(model[0]) is nn.Embedding


@pytest.mark.parametrize("model_type", ["llama", "olmo"])
def test_no_matrix_of_a_model_that_came_as_bfloat16_stays_float32(model_type: str) -> None:
    model = tiny_model(model_type)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    assert run_mixed(model).deviation < 1e-4  # from transformers with plain layers
    assert isinstance(model.get_input_embeddings(), FloatEmbedding)
    assert not [name for name, each in model.named_parameters() if each.dim() > 1 and each.dtype == torch.float32]


def test_a_model_that_reads_its_weights_by_itself_gets_its_table_back() -> None:
    model = tiny_model("llama")
    table = model.model.embed_tokens.weight.clone()
    read_weights_of_mlp(model)
    Assembly(model, EngineConfig(dtype="float32", fuse=False))
    assert torch.equal(model.model.embed_tokens.weight, table)
