"""What the interpreter can't tell: every launch compiles to machine code, whose tiles fit in shared memory.

Triton compiles for a GPU that isn't there. Launches are caught and compiled with the types of their
arguments; nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from contrib_kernels.triton.attention import TritonAttention
from contrib_kernels.triton.operators import TritonOperators
from core_engine.model.kernels import AttentionShape
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import Reach
from core_engine.model.operators import ACTIVATIONS, JointHeads
from tests.kernels.exact import Trial, shape_of
from tests.kernels.exact_operators import random

LEAST_SHARED_BYTES = 99 * 1024  # what a program may use on capabilities 8.6, 8.9 and 12.0; others have more
TYPES = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int32: "*i32", torch.int64: "*i64"
}  # fmt: skip


@pytest.fixture(autouse=True, params=[80, 90])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of the kernels that were compiled instead of run."""
    names: list[str] = []

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        signature, constants, attributes = {}, {}, {}
        for i, (parameter, arg) in enumerate(zip(self.params, args, strict=True)):
            if parameter.is_constexpr or arg is None:
                kind, constants[(i,)] = "constexpr", arg
            elif isinstance(arg, torch.Tensor):
                kind = TYPES[arg.dtype]
            else:
                kind = "fp32" if isinstance(arg, float) else "i32"
            signature[parameter.name] = kind
            if kind[0] == "*" or (kind == "i32" and arg % 16 == 0):
                attributes[(i,)] = [["tt.divisibility", 16]]
        source = ASTSource(self, signature, constants, attributes)
        machine_code = triton.compile(source, target=GPUTarget("cuda", request.param, 32), options=options)
        assert machine_code.metadata.shared <= LEAST_SHARED_BYTES, machine_code.metadata
        names.append(self.__name__)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(JITFunction, "run", compile_only)
    return names


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        (shape_of(num_heads=9, num_kv_heads=3, size=64, dtype=torch.bfloat16), [(1, 600)]),
        (shape_of(size=128, dtype=torch.float16, reach=Reach(window=64)), [(1, 600), (9, 9)]),
        (
            shape_of(size=80, dtype=torch.bfloat16, reach=Reach(chunk=64), softcap=50.0, has_sinks=True),
            [(1, 1), (1, 600)],
        ),
        (shape_of(size=256, value_size=192, dtype=torch.bfloat16), [(9, 9)]),
        (shape_of(size=256, dtype=torch.float32), [(9, 9)]),
        (shape_of(num_heads=64, num_kv_heads=1, size=256, dtype=torch.bfloat16), [(1, 9)]),
    ],
)
def test_attention(compiled: list[str], shape: AttentionShape, rows: list[tuple[int, int]]) -> None:
    Trial(shape, rows).run(TritonAttention(processors=2))
    assert {"write_slots", "attend_items"} <= set(compiled)
    assert ("merge_parts" in compiled) == ((1, 600) in rows and shape.reach == Reach())


def test_operators(compiled: list[str]) -> None:
    operators, states = TritonOperators(), random(3, 4096, dtype=torch.bfloat16)
    weight = random(4096)
    operators.rms_norm(states, weight, 1e-5)
    operators.add_rms_norm(states, states.float(), weight, 1e-5)
    for activation in ACTIVATIONS:
        operators.gate(states, activation)
    cache = KVCache(*(random(8, 3, 16, 128, dtype=torch.bfloat16) for _ in range(2)))
    joint, angles = random(3, 48 * 128, dtype=torch.bfloat16), random(3, 128, dtype=torch.bfloat16)
    for heads in (
        JointHeads(32, 8, 128),
        JointHeads(32, 8, 128, random(128), random(128), False, 1e-6),
        JointHeads(32, 8, 128, random(32 * 128), random(8 * 128), True, 1e-6),
    ):
        operators.rotate_and_write(joint, heads, angles, angles, cache, torch.tensor([3, 40, 7]))
    assert compiled == ["norm_rows"] * 2 + ["gate_rows"] * 3 + ["rotate_to_slots"] * 3
