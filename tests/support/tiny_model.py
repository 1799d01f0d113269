"""Directories of tiny models without weights, for the simulated executor and for tests of text.

The tokenizers are trained here, on a few sentences, in some milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
_TEXTS = [
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "You are a helpful assistant. Tell me a story about a small bus.",
    "Passengers board and leave wherever they like; every iteration is a stop.",
    "def step(self): return [token for token in self.tokens if token > 0]",
    "Grüße aus Zürich — naïve café, 東京は今日も晴れ。 Привет, мир! 🚌🎉",
]
Kind = Literal["byte_level", "metaspace"]


def byte_level_tokenizer(vocab_size: int = 512) -> Tokenizer:
    """Byte-level BPE with ChatML's tokens, as Qwen and SmolLM have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer


def metaspace_tokenizer(vocab_size: int = 512) -> Tokenizer:
    """BPE over words marked by `▁`, with one token per byte for what it never saw, as Llama 2 has it."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], show_progress=False
    )
    tokenizer.train_from_iterator([text.replace("🚌🎉", "") for text in _TEXTS], trainer)
    # The trainer takes bytes for control tokens; as in the real ones they are ordinary.
    description = json.loads(tokenizer.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["id"] < 3]
    description["post_processor"] = json.loads(
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]).__getstate__()
    )
    return Tokenizer.from_str(json.dumps(description))


def write_tiny_model(
    directory: Path,
    *,
    kind: Kind = "byte_level",
    max_model_len: int = 2048,
    chat_template: str | list[dict[str, str]] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write config.json (of a small Llama), tokenizer.json and tokenizer_config.json; return the directory.

    `chat_template` replaces the kind's own (ChatML for byte_level); an empty string means none.
    `config` overrides fields of config.json.
    """
    directory.mkdir(parents=True, exist_ok=True)
    byte_level = kind == "byte_level"
    tokenizer = byte_level_tokenizer() if byte_level else metaspace_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    bos, eos = ("<|endoftext|>", "<|im_end|>") if byte_level else ("<s>", "</s>")
    tokenizer_config: dict[str, Any] = {
        "bos_token": bos,
        "eos_token": eos,
        "model_max_length": max_model_len,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    template = chat_template if chat_template is not None else (CHATML if byte_level else LLAMA2)
    if template:
        tokenizer_config["chat_template"] = template
    model_config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": tokenizer.token_to_id(bos),
        "eos_token_id": tokenizer.token_to_id(eos),
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 128,
        "max_position_embeddings": max_model_len,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": tokenizer.get_vocab_size(),
        **(config or {}),
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2), encoding="utf-8")
    (directory / "config.json").write_text(json.dumps(model_config, indent=2), encoding="utf-8")
    return directory
