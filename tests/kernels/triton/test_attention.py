"""Paged attention in Triton against its definition in float64, over memory that was poisoned before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contrib_kernels.triton.attention import TritonAttention
from core_engine.model.kernels import AttentionShape
from core_engine.model.layout import Reach
from tests.kernels.exact import Trial, shape_of

MIXED = [(1, 37), (9, 9), (1, 1), (5, 70), (1, 64), (1, 65)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCES = {torch.float32: 3e-6, torch.bfloat16: 0.03, torch.float16: 4e-3}


@pytest.fixture
def kernel() -> TritonAttention:
    return TritonAttention(processors=2)


@pytest.fixture
def deviation(kernel: TritonAttention, device: torch.device):  # type: ignore[no-untyped-def]
    def of(
        shape: AttentionShape, rows: list[tuple[int, int]] = MIXED, block_size: int = 16, magnitude: float = 1.0
    ) -> float:
        return Trial(shape, rows, block_size, magnitude, device).deviation(kernel)

    return of


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block_size", [8, 16, 31, 96, 112])
def test_block_sizes(deviation, block_size: int, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    assert deviation(shape_of(dtype=dtype), block_size=block_size) <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("size", "value_size"), [(16, 16), (8, 24), (40, 72), (64, 64), (80, 80), (128, 96), (256, 256)]
)
def test_head_sizes(deviation, size: int, value_size: int, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    assert deviation(shape_of(size=size, value_size=value_size, dtype=dtype)) <= TOLERANCES[dtype]


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (4, 4), (9, 3), (14, 2), (71, 1)])
@pytest.mark.parametrize("rows", [MIXED, [(1, 5), (1, 40), (1, 1)]], ids=["mixed", "decodes"])
def test_groups_of_heads(deviation, num_heads: int, num_kv_heads: int, rows) -> None:  # type: ignore[no-untyped-def]
    shape = shape_of(num_heads=num_heads, num_kv_heads=num_kv_heads)
    assert deviation(shape, rows) <= TOLERANCES[torch.float32]


@pytest.mark.parametrize(
    "reach", [Reach(window=1), Reach(window=12), Reach(window=64), Reach(chunk=12), Reach(chunk=64)], ids=str
)
def test_reaches(deviation, reach: Reach) -> None:  # type: ignore[no-untyped-def]
    assert deviation(shape_of(reach=reach), [*MIXED, (70, 150)]) <= TOLERANCES[torch.float32]


@pytest.mark.parametrize("dtype", DTYPES)
def test_softcap_and_sinks(deviation, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    shape = shape_of(softcap=5.0, has_sinks=True, dtype=dtype)
    assert deviation(shape, magnitude=2.0) <= 3 * TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [[(1, 900)], [(1, 500), (1, 2), (3, 300)]])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_long_decodes_are_cut_and_merged(  # type: ignore[no-untyped-def]
    deviation, rows: list[tuple[int, int]], has_sinks: bool, dtype: torch.dtype
) -> None:
    assert deviation(shape_of(has_sinks=has_sinks, dtype=dtype), rows, magnitude=2.0) <= 3 * TOLERANCES[dtype]


def test_scores_far_apart(deviation) -> None:  # type: ignore[no-untyped-def]
    """One key takes all the weight, and scores are beyond what exp can take."""
    assert deviation(shape_of(size=64), magnitude=20.0) <= 0.02
    assert deviation(shape_of(size=64, softcap=5.0), magnitude=20.0) <= 0.02


def test_an_empty_batch(deviation) -> None:  # type: ignore[no-untyped-def]
    assert deviation(shape_of(), []) == 0.0


def test_what_is_not_finite_stays_with_its_query(kernel: TritonAttention, device: torch.device) -> None:
    class Poisoned(TritonAttention):
        def attend(self, query, cache, plan, shape, sinks, output) -> None:  # type: ignore[no-untyped-def]
            query[:, 1] = float("nan")
            super().attend(query, cache, plan, shape, sinks, output)

    found, expected = Trial(shape_of(), MIXED, device=device).run(Poisoned(processors=2))
    assert found[1].isnan().all()
    others = torch.arange(len(found), device=device) != 1
    assert float((found.double() - expected)[others].abs().max()) <= TOLERANCES[torch.float32]


def test_what_it_refuses(kernel: TritonAttention) -> None:
    shape = replace(shape_of(), device_type="cuda")
    assert kernel.refusal(shape) is None
    for change, reason in (
        ({"device_type": "cpu"}, "NVIDIA"),
        ({"dtype": torch.float64}, "float64"),
        ({"value_size": 257}, "256"),
        ({"num_heads": 258, "key_size": 256}, "32 query heads"),
    ):
        assert reason in (kernel.refusal(replace(shape, **change)) or "")
