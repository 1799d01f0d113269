"""Writes tiny models as GGUF files, as llama.cpp's converter would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tests.model.conftest import tiny_tokenizer

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip


def write_llama(
    model: Any, path: Path, *, splitting: str | None = "smollm", chat_template: str = "{{ messages }}"
) -> None:
    """A llama model in float32 with the tests' byte-level tokenizer, three control tokens in front."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, config.vocab_size, splitting)
    writer.add_chat_template(chat_template)
    weights = model.state_dict()
    tensors = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    for layer in range(config.num_hidden_layers):
        tensors |= {f"blk.{layer}.{ours}": f"model.layers.{layer}.{theirs}" for ours, theirs in _LAYER_NAMES.items()}
    for ours, theirs in tensors.items():
        weight = weights[f"{theirs}.weight"].float()
        if ours.endswith("attn_q"):
            weight = _interleaved(weight, config.num_attention_heads)
        elif ours.endswith("attn_k"):
            weight = _interleaved(weight, config.num_key_value_heads)
        writer.add_tensor(f"{ours}.weight", np.ascontiguousarray(weight.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, vocab_size: int, splitting: str | None) -> None:
    vocabulary = tiny_tokenizer().get_vocab()
    control = ["<unk>", "<|im_start|>", "<|im_end|>"]
    tokens = control + sorted(vocabulary, key=vocabulary.__getitem__) + ["ĠĠ", "12"]
    tokens += [f"unused{i}" for i in range(vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    if splitting is not None:
        writer.add_tokenizer_pre(splitting)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (vocab_size - 3))
    writer.add_token_merges(["Ġ Ġ", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def _interleaved(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """llama.cpp rotates neighbouring elements of a head, transformers the halves of it."""
    return weight.view(num_heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
