"""Numbers of a loaded model that the engine plans by."""

from __future__ import annotations

import logging
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.model.kernels import AttentionShape

_log = logging.getLogger("jitney.model")

_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")


def max_model_len(model_config: Any, config: EngineConfig) -> int:
    """Tokens of prompt and output by the model's own limit and the configured one.

    Raises ModelError where neither is known.
    """
    text_config = model_config.get_text_config()
    limits = [value for field in _LENGTH_FIELDS if (value := getattr(text_config, field, None))][:1]
    limits += _long_rope_limits(text_config)
    if config.max_model_len is not None:
        if limits and config.max_model_len > min(limits):
            _log.warning(
                "max_model_len %d is beyond the model's own %d, which holds", config.max_model_len, min(limits)
            )
        limits.append(config.max_model_len)
    if not limits:
        raise ModelError("the model doesn't say how long a sequence it takes; give max_model_len")
    return min(limits)


def _long_rope_limits(text_config: Any) -> list[int]:
    """Where rotary frequencies would change with the longest sequence in the batch, sequences must stay below.

    Models with such frequencies (longrope) switch all sequences of a batch to other ones as soon as
    one is longer than the model was first trained for: a neighbour would change the others' text.
    """
    rope = getattr(text_config, "rope_parameters", None) or {}
    layers = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    return [
        layer["original_max_position_embeddings"]
        for layer in layers
        if layer.get("rope_type") == "longrope" and "original_max_position_embeddings" in layer
    ]


def eos_token_ids(model: Any) -> tuple[int, ...]:
    """Ends of sequence by the generation configuration, else by the model's."""
    for source in (model.generation_config, model.config.get_text_config()):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, (list, tuple)) else (int(ids),)
    return ()


def row_flops(model: Any) -> float:
    """Floating-point operations of all weights that every token passes, the output layer left out.

    Two per weight; of experts, as many as a token is sent to. The output layer is computed for the
    sampled rows only.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    head = model.get_output_embeddings()
    if head is not None:
        tables.add(id(head.weight))
    share = _expert_share(model.config.get_text_config())
    return float(
        sum(
            2 * parameter.numel() * (share if ".experts." in name else 1.0)
            for name, parameter in model.named_parameters()
            if parameter.dim() >= 2 and id(parameter) not in tables
        )
    )


def _expert_share(text_config: Any) -> float:
    used = getattr(text_config, "num_experts_per_tok", None) or 1
    fields = ("num_experts", "num_local_experts", "n_routed_experts")
    total = next((value for field in fields if (value := getattr(text_config, field, None))), used)
    return min(1.0, used / total)


def attention_flops(shapes: list[AttentionShape]) -> float:
    """Floating-point operations of one query against one key, over all layers."""
    return float(sum(2 * shape.num_heads * (shape.key_size + shape.value_size) for shape in shapes))


def activation_bytes_per_token(model: Any) -> int:
    """About what a token takes while it passes a layer, held in float32 as norms and activations do."""
    hidden = model.config.get_text_config().hidden_size
    head = model.get_output_embeddings()
    widest = max(
        (max(p.shape) for p in model.parameters() if p.dim() >= 2 and not _is_table(p, model, head)), default=hidden
    )
    return 4 * (6 * hidden + 3 * widest)


def _is_table(parameter: torch.Tensor, model: Any, head: Any) -> bool:
    embedding = model.get_input_embeddings()
    return (embedding is not None and parameter is embedding.weight) or (head is not None and parameter is head.weight)
