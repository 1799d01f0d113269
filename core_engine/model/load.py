"""From a model's directory to an executor that can run it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.executor import ModelSpec
from core_engine.model import facts, memory
from core_engine.model.attention import AttentionSite
from core_engine.model.devices import choose_device, choose_dtype
from core_engine.model.executor import TransformersExecutor
from core_engine.model.fuse import fuse
from core_engine.model.greedy import chooser
from core_engine.model.kernels import KernelRegistry
from core_engine.model.packing import packing_for, trace_packed
from core_engine.model.providers import kernels_for
from core_engine.model.sampler import Sampler
from core_engine.model.stack import adopt_stack
from core_engine.model.tracing import trace_attention
from core_engine.model.weights import release_file, weight_bytes

_log = logging.getLogger("jitney.model")


def load_model(config: EngineConfig, directory: Path) -> Any:
    """The transformers model with its weights on the chosen device, in the chosen format. Raises ModelError."""
    device = choose_device(config)
    dtype = choose_dtype(config, device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
        if config.threads > (cores := len(os.sched_getaffinity(0))):
            _log.warning(
                "%d threads are more than the %d cores here, and will wait for each other", config.threads, cores
            )
    transformers.logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=dtype,
            attn_implementation="eager",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except Exception as error:
        raise ModelError(
            f"{directory} can't be loaded by transformers {transformers.__version__}: {type(error).__name__}: {error}"
        ) from error
    return model.to(device).eval()


class Assembly:
    """What is learnt of a model on the way to its executor, and done to it."""

    def __init__(self, model: Any, config: EngineConfig, kernels: KernelRegistry | None = None) -> None:
        """Traces the model's attention, fuses its modules and packs its linear layers.

        Raises ModelError, for int8 weights too where the processor gains nothing by them.
        """
        self.model = model
        self._config = config
        self._kernels = kernels or kernels_for(torch.device(model.device).type, config.kernels)
        self._packing = packing_for(model, self._kernels, config)
        loaded_bytes = weight_bytes(model)
        if self._packing is not None:
            release_file(model)
        self._vocab_size = model.get_input_embeddings().weight.shape[0]
        self._row_flops = facts.row_flops(model)
        self._activation_bytes = facts.activation_bytes_per_token(model)
        self._calls = trace_attention(model)
        num_fused = fuse(model, self._calls, self._kernels) if config.fuse else 0
        self._calls = trace_packed(model, self._packing)
        _log.info("kernels: attention by %s; %d modules fused", " and ".join(self._attention_names), num_fused)
        self._weight_bytes = weight_bytes(model)
        _log.info(
            "weights: %s MB in memory, %.2f times as much as before they were packed",
            *(f"{self._weight_bytes / 1e6:,.0f}", self._weight_bytes / loaded_bytes),
        )

    @property
    def kernel_names(self) -> list[str]:
        """Everything that computes in place of transformers and torch: what a probe's verdict depends on."""
        names = set(self._attention_names)
        if self._packing is not None:
            names.add(self._packing.name)
        if self._config.fuse:
            names.add(f"fused {self._kernels.operators_for(self.model.dtype).name}")
        return sorted(names)

    @property
    def _attention_names(self) -> list[str]:
        return sorted({self._kernels.attention_for(call.shape).name for call in self._calls})

    def executor(self, name: str) -> TransformersExecutor:
        """The executor, with memory for keys and values allocated. Raises ModelError where there is too little."""
        config, model = self._config, self.model
        device = torch.device(model.device)
        shapes = [call.shape for call in self._calls]
        bytes_per_token = memory.kv_bytes_per_token(shapes)
        max_model_len = facts.max_model_len(model.config, config)
        free_bytes = memory.free_bytes(device)
        num_blocks = memory.num_kv_blocks(config, bytes_per_token, max_model_len, device)
        caches = memory.allocate_caches(shapes, num_blocks, config.block_size, device)
        left_bytes = free_bytes - num_blocks * config.block_size * bytes_per_token
        spec = ModelSpec(
            name=name,
            architecture=type(model).__name__,
            dtype=str(model.dtype).removeprefix("torch."),
            device=device.type,
            vocab_size=self._vocab_size,
            max_model_len=max_model_len,
            num_blocks=num_blocks,
            block_size=config.block_size,
            kv_bytes_per_token=bytes_per_token,
            eos_token_ids=facts.eos_token_ids(model),
            row_flops=self._row_flops,
            attention_flops=facts.attention_flops(shapes),
            weight_bytes=self._weight_bytes,
            max_lone_prompt_tokens=min(
                max_model_len, max(config.token_limit, left_bytes // 2 // self._activation_bytes)
            ),
        )
        _log.info(
            "keys and values: %s blocks of %d tokens, %s tokens in all, %s bytes per token; longest context %s tokens",
            *(f"{num_blocks:,}", config.block_size, f"{num_blocks * config.block_size:,}", f"{bytes_per_token:,}"),
            f"{min(max_model_len, num_blocks * config.block_size):,}",
        )
        same = {shape: shape for shape in shapes}
        sites = [
            AttentionSite(call.module, same[call.shape], self._kernels.attention_for(call.shape), cache)
            for call, cache in zip(self._calls, caches, strict=True)
        ]
        executor = TransformersExecutor(
            model,
            spec,
            sites,
            Sampler(spec.eos_token_ids, chooser(self._kernels.best_tokens, device)),
            hands_down_pass=all(call.was_handed_pass for call in self._calls),
        )
        if self._kernels.layer_stack is not None:
            adopt_stack(executor, self._kernels.layer_stack)
        return executor
