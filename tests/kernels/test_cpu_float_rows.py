"""Products of float32 rows with weights of 32, 16 and 8 bits against the same in float64."""

from __future__ import annotations

from ctypes import byref

import pytest
import torch

from contrib_kernels.cpu.float_rows import FloatRows, FloatRowsLinear
from contrib_kernels.cpu.library import Library

FORMATS = [torch.float32, torch.bfloat16, torch.int8]
SIZES = [(1, 1), (7, 5), (100, 33), (3, 16), (64, 49), (1536, 47), (576, 960)]  # inputs, outputs


def layer(
    library: Library, inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool = False
) -> tuple[FloatRowsLinear, torch.Tensor, torch.Tensor]:
    """The layer, its weight in float32 and its bias, zeros where it has none."""
    torch.manual_seed(inputs)
    scales = None
    if dtype == torch.int8:
        weight, scales = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8), torch.rand(outputs) / 127
    else:
        weight = torch.randn(outputs, inputs).to(dtype)
    added = torch.randn(outputs) if bias else None
    product = FloatRows(library).product(weight, scales, added)
    assert product is not None
    floats = weight.float() if scales is None else weight.float() * scales.unsqueeze(-1)
    return product, floats, torch.zeros(outputs) if added is None else added


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_products(library: Library, inputs: int, outputs: int, dtype: torch.dtype, bias: bool) -> None:
    product, weight, added = layer(library, inputs, outputs, dtype, bias=bias)
    for rows in (*range(15), 24, 25, 100):
        states = torch.randn(1, rows, inputs)
        exact = states.double() @ weight.double().T + added.double()
        found = product(states)
        assert found.shape == (1, rows, outputs)
        assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", FORMATS)
def test_many_rows_that_are_taken_in_pieces(library: Library, dtype: torch.dtype) -> None:
    product, weight, _ = layer(library, 3000, 20, dtype)
    states = torch.randn(301, 3000)
    assert torch.allclose(product(states).double(), states.double() @ weight.double().T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_the_weight_can_be_had_again(library: Library, inputs: int, outputs: int, dtype: torch.dtype) -> None:
    product, weight, _ = layer(library, inputs, outputs, dtype)
    assert torch.equal(product.weight(), weight)


@pytest.mark.parametrize("dtype", FORMATS)
def test_rows_of_the_weight_can_be_looked_up(library: Library, dtype: torch.dtype) -> None:
    product, weight, _ = layer(library, 24, 37, dtype)
    indices = torch.tensor([[0, 36, 7, 7], [8, 15, 16, 31]])
    assert torch.equal(product.rows(indices), weight[indices])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 40])
def test_every_number_is_written_and_none_beyond(library: Library, rows: int, dtype: torch.dtype) -> None:
    product, _, _ = layer(library, 24, 37, dtype)
    states, room = torch.randn(rows, 24), torch.full((rows + 2, 37), torch.nan)
    library.float_rows(byref(product.parameters), states.data_ptr(), room[1].data_ptr(), rows)
    assert room[1:-1].isfinite().all()
    assert room[0].isnan().all()
    assert room[-1].isnan().all()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("rows", [2, 3, 8, 40])
def test_a_strange_row_harms_no_other_and_stays_strange(library: Library, rows: int, dtype: torch.dtype) -> None:
    product, _, _ = layer(library, 24, 37, dtype)
    states = torch.randn(rows, 24)
    expected = product(states)
    states[1, 5] = torch.nan
    found = product(states)
    assert found[1].isnan().all()
    others = [row for row in range(rows) if row != 1]
    assert torch.equal(found[others], expected[others])


def test_a_row_gives_the_same_among_any_others(library: Library) -> None:
    product, _, _ = layer(library, 576, 96, torch.bfloat16)
    states = torch.randn(40, 576)
    together = product(states)
    for rows in range(1, 40):
        assert torch.equal(product(states[:rows]), together[:rows])


def test_other_formats_are_refused(library: Library) -> None:
    floats = FloatRows(library)
    assert floats.product(torch.ones(4, 4, dtype=torch.float16), None, None) is None
    assert floats.product(torch.ones(4, 4), None, torch.ones(4, dtype=torch.bfloat16)) is None
