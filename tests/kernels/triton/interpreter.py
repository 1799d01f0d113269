"""Triton's interpreter holds bfloat16 as 16-bit integers, multiplies them as such and truncates: put right here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from triton import language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def mend() -> None:
    """Let matrices of bfloat16 be multiplied as the numbers they are, and float32 be rounded to the nearest."""
    multiply, cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def multiply_widened(self: InterpreterBuilder, a: Any, b: Any, *rest: Any) -> Any:
        a, b = (cast(self, each, tl.float32) if each.dtype.scalar == tl.bfloat16 else each for each in (a, b))
        return multiply(self, a, b, *rest)

    def cast_rounded(self: InterpreterBuilder, source: Any, kind: Any) -> Any:
        if source.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(self, source, kind)
        rounded = torch.from_numpy(np.array(source.data)).to(torch.bfloat16).view(torch.int16)
        return TensorHandle(rounded.numpy().view(np.uint16), tl.bfloat16)

    InterpreterBuilder.create_dot = multiply_widened
    InterpreterBuilder.cast_impl = cast_rounded
