"""A tiny random model of any decoder type that transformers knows."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

MAX_PARAMETERS = 8_000_000

# Set wherever a configuration has a field of that name. Windows and chunks are shorter than the test's sequences.
_TINY: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
    "sliding_window": 12, "window_size": 12, "attention_chunk_size": 12,
    "n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": 96, "n_positions": 256, "n_ctx": 256, "rotary_dim": 8,
    "ffn_dim": 96, "ffn_hidden_size": 96, "word_embed_proj_dim": 64, "d_model": 64, "n_heads": 4, "n_layers": 3,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48, "first_k_dense_replace": 1,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "attention_dropout": 0.0,
}  # fmt: skip

_ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
_USUAL_SCALING = {"attention_multiplier": 0.25}  # by default 1, so sharp that rounding shows
_LATENT = {"num_key_value_heads": 4, "head_dim": 8}  # multi-head latent attention: no grouped heads

# What a type needs besides; None for a field to be left at its default.
_SPECIAL: dict[str, dict[str, Any]] = {
    "axk1": _LATENT,
    "axk2": _LATENT,
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "dots1": {"n_shared_experts": 1, "layer_types": _ALTERNATING},
    "exaone4": {"layer_types": _ALTERNATING},
    "falcon": {"head_dim": None, "alibi": False, "new_decoder_architecture": False},
    "gemma3_text": {"layer_types": _ALTERNATING},
    "gemma3n_text": {
        "layer_types": [*_ALTERNATING, "full_attention"], "num_hidden_layers": 4, "num_kv_shared_layers": 1,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 128, "laurel_rank": 8, "intermediate_size": 96,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "gemma4_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4, "num_kv_shared_layers": 1,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 128, "global_head_dim": 32, "head_dim": 16,
        "num_key_value_heads": 2, "num_attention_heads": 4, "sliding_window": 12,
    },
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": _LATENT,
    "gpt_neo": {"num_layers": 3, "num_hidden_layers": None, "attention_types": [[["global", "local", "global"], 1]]},
    "granite": _USUAL_SCALING,
    "granite_swa": _USUAL_SCALING,
    "granitemoe": _USUAL_SCALING,
    "granitemoe_swa": _USUAL_SCALING,
    "granitemoeshared": _USUAL_SCALING,
    "llama4_text": {
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention"], "no_rope_layers": [1, 0, 1],
        "intermediate_size_mlp": 96,
    },
    "hrm_text": {"H_cycles": 1, "L_cycles": 1},  # more rounds only blow up rounding
    "longcat_flash": _LATENT,
    "minicpm3": _LATENT,
    "olmo3": {"layer_types": _ALTERNATING},
    "qwen2": {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    "sarvam_mla": _LATENT,
    "youtu": _LATENT,
}  # fmt: skip

DECODER_TYPES: tuple[str, ...] = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


class NotBuiltError(Exception):
    """No tiny model of that type could be made; the text says why."""


def tiny_config(model_type: str) -> Any:
    """A configuration of a few layers. Raises NotBuiltError."""
    try:
        default = AutoConfig.for_model(model_type).get_text_config()
        fields = {name: value for name, value in _TINY.items() if _has(default, name)}
        fields |= _SPECIAL.get(model_type, {})
        config = type(default)(**{name: value for name, value in fields.items() if value is not None})
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=torch.float32)
    except Exception as error:
        raise NotBuiltError(f"{type(error).__name__}: {error}") from error
    num_parameters = sum(parameter.numel() for parameter in empty.parameters())
    if num_parameters > MAX_PARAMETERS:
        raise NotBuiltError(f"its smallest form here still has {num_parameters:,} parameters")
    return config


def _has(config: Any, name: str) -> bool:
    try:
        return hasattr(config, name)
    except Exception:  # a field that differs from layer to layer refuses to be read
        return False


def tiny_model(model_type: str, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """A random model whose logits depend clearly on every earlier token. Raises NotBuiltError."""
    config = tiny_config(model_type)
    torch.manual_seed(seed)
    try:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    except Exception as error:
        raise NotBuiltError(f"{type(error).__name__}: {error}") from error
    # As initialised, attention is nearly uniform and says little; larger weights make it choose.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 2.0 * parameter.shape[-1] ** -0.5)
    return model.to(dtype).eval()
