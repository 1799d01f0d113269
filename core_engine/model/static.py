"""What transformers does by itself: static batches, padded, each as long as its longest answer.

The baseline that continuous batching is measured against, on the same weights in the same process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.model.devices import choose_device, choose_dtype
from core_engine.request import Request


class StaticBatches:
    """transformers' own `generate` over batches of requests, in order of arrival."""

    def __init__(self, config: EngineConfig, directory: Path) -> None:
        """Loads the model a second time, as transformers would have it."""
        transformers.logging.set_verbosity_error()
        device = choose_device(config)
        self._model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=choose_dtype(config, device), use_safetensors=True, local_files_only=True
        )
        self._model.to(device).eval()
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 0

    def seconds(self, wanted: Sequence[Request], batch_size: int = 32) -> float:
        """Of all requests, greedily, every one with all its tokens."""
        clock = MonotonicClock()
        began = clock.now()
        for first in range(0, len(wanted), batch_size):
            self._run(wanted[first : first + batch_size])
        return clock.now() - began

    @torch.inference_mode()
    def _run(self, batch: Sequence[Request]) -> None:
        longest = max(len(request.prompt_token_ids) for request in batch)
        token_ids = torch.zeros(len(batch), longest, dtype=torch.long)
        attended = torch.zeros_like(token_ids)
        for row, request in enumerate(batch):
            start = longest - len(request.prompt_token_ids)  # padded on the left, so that all end together
            token_ids[row, start:] = torch.tensor(request.prompt_token_ids)
            attended[row, start:] = 1
        num_new = max(request.sampling.max_tokens or 1 for request in batch)
        self._model.generate(
            input_ids=token_ids.to(self._model.device),
            attention_mask=attended.to(self._model.device),
            max_new_tokens=num_new,
            do_sample=False,
        )
