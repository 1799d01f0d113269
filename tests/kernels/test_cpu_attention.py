"""Paged attention of mixed batches against its definition in float64, over memory that was poisoned before."""

from __future__ import annotations

import pytest
import torch

from contrib_kernels.cpu.attention import CpuAttention
from contrib_kernels.cpu.library import Library
from core_engine.model.layout import Reach
from core_engine.model.reference import ReferenceAttention
from tests.kernels.exact import Trial, shape_of

MIXED = [(1, 37), (9, 9), (1, 1), (5, 70), (1, 64), (1, 65), (33, 40)]
EXACT, ROUNDED = 2e-6, 0.03


@pytest.fixture
def kernel(library: Library) -> CpuAttention:
    return CpuAttention(library)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block_size", [8, 16, 31, 96, 112, 256])
def test_block_sizes(kernel: CpuAttention, block_size: int, dtype: torch.dtype) -> None:
    trial = Trial(shape_of(dtype=dtype), MIXED, block_size)
    assert trial.deviation(kernel) <= (EXACT if dtype == torch.float32 else ROUNDED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("size", "value_size"), [(16, 16), (24, 16), (40, 72), (64, 64), (80, 80), (128, 96), (256, 256)]
)
def test_head_sizes(kernel: CpuAttention, size: int, value_size: int, dtype: torch.dtype) -> None:
    trial = Trial(shape_of(size=size, value_size=value_size, dtype=dtype), MIXED)
    assert trial.deviation(kernel) <= (EXACT if dtype == torch.float32 else ROUNDED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (4, 4), (9, 3), (14, 2), (8, 1), (20, 1)])
def test_groups_of_heads(kernel: CpuAttention, num_heads: int, num_kv_heads: int, dtype: torch.dtype) -> None:
    trial = Trial(shape_of(num_heads=num_heads, num_kv_heads=num_kv_heads, dtype=dtype), MIXED)
    assert trial.deviation(kernel) <= (EXACT if dtype == torch.float32 else ROUNDED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "reach", [Reach(window=1), Reach(window=12), Reach(window=64), Reach(chunk=12), Reach(chunk=64)], ids=str
)
def test_reaches(kernel: CpuAttention, reach: Reach, dtype: torch.dtype) -> None:
    trial = Trial(shape_of(reach=reach, dtype=dtype), [*MIXED, (100, 150)])
    assert trial.deviation(kernel) <= (EXACT if dtype == torch.float32 else ROUNDED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softcap_and_sinks(kernel: CpuAttention, dtype: torch.dtype) -> None:
    trial = Trial(shape_of(softcap=5.0, has_sinks=True, dtype=dtype), MIXED, magnitude=2.0)
    assert trial.deviation(kernel) <= (1e-5 if dtype == torch.float32 else 2 * ROUNDED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [[(1, 3000)], [(1, 1500), (1, 2), (3, 700)]])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_long_decodes_are_cut_and_merged(
    kernel: CpuAttention, rows: list[tuple[int, int]], has_sinks: bool, dtype: torch.dtype
) -> None:
    trial = Trial(shape_of(has_sinks=has_sinks, dtype=dtype), rows, magnitude=2.0)
    assert trial.deviation(kernel) <= (1e-5 if dtype == torch.float32 else ROUNDED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_far_apart(kernel: CpuAttention, dtype: torch.dtype) -> None:
    """One key takes all the weight, and scores are beyond what exp can take; values are rounded to 1/4 above 64."""
    trial = Trial(shape_of(size=64, dtype=dtype), MIXED, magnitude=20.0)
    assert trial.deviation(kernel) <= (0.02 if dtype == torch.float32 else 0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_long_chunk_is_tiled(kernel: CpuAttention, dtype: torch.dtype) -> None:
    trial = Trial(shape_of(num_heads=3, num_kv_heads=1, dtype=dtype), [(150, 151), (151, 290)])
    assert trial.deviation(kernel) <= (EXACT if dtype == torch.float32 else ROUNDED)


def test_an_empty_batch(kernel: CpuAttention) -> None:
    assert Trial(shape_of(), []).deviation(kernel) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("token", [0, 4])  # a decode, one of a chunk
def test_what_is_not_finite_stays_with_its_row(kernel: CpuAttention, token: int, dtype: torch.dtype) -> None:
    class Poisoned(CpuAttention):
        def attend(self, query, cache, plan, shape, sinks, output) -> None:  # type: ignore[no-untyped-def]
            query[:, token] = float("nan")
            super().attend(query, cache, plan, shape, sinks, output)

    poisoned = Poisoned.__new__(Poisoned)
    poisoned.name, poisoned._library = kernel.name, kernel._library
    found, expected = Trial(shape_of(dtype=dtype), MIXED).run(poisoned)
    assert found[token].isnan().all()
    difference = (found.double() - expected).abs()
    difference[token] = 0.0
    assert float(difference.max()) <= (EXACT if dtype == torch.float32 else ROUNDED)


def test_the_reference_agrees_with_the_definition() -> None:
    for shape in (shape_of(), shape_of(softcap=5.0, has_sinks=True), shape_of(reach=Reach(window=12))):
        assert Trial(shape, MIXED).deviation(ReferenceAttention()) <= 1e-5


def test_what_it_refuses(kernel: CpuAttention) -> None:
    assert kernel.refusal(shape_of()) is None
    assert "float16" in (kernel.refusal(shape_of(dtype=torch.float16)) or "")
    assert "512" in (kernel.refusal(shape_of(size=1024)) or "")
