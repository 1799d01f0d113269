"""CpuBestTokens: the best token of every row of logits, in C++."""

from __future__ import annotations

import torch

from contrib_kernels.cpu.library import Library, is_bf16, serves


class CpuBestTokens:
    """BestTokens for float32 and bfloat16 on the CPU: reads each logit once, `itemsize` bytes, and writes none."""

    def __init__(self, library: Library) -> None:
        self.name = f"{library.name}-{library.identity}"
        self._library = library

    def refusal(self, dtype: torch.dtype) -> str | None:
        """Serves the CPU's two formats."""
        return None if serves(dtype) else f"it reads float32 and bfloat16, not {dtype}"

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """See BestTokens."""
        logits = logits if logits.stride(1) == 1 else logits.contiguous()
        tokens = torch.empty(logits.shape[0], dtype=torch.int64)
        self._library.best_tokens(
            logits.data_ptr(), logits.stride(0), tokens.data_ptr(), *logits.shape, is_bf16(logits.dtype)
        )
        return tokens
