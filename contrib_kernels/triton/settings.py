"""What all kernels have in common: the formats they serve and how they are compiled."""

from __future__ import annotations

import torch

FORMATS = (torch.float32, torch.bfloat16, torch.float16)

# A multiplication and the addition after it in one instruction. Said with every launch, since Triton's default changes.
FUSED_MULTIPLY_ADD = {"enable_fp_fusion": True}
