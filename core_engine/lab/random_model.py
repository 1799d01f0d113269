"""Models of a known shape with random weights, to see how the engine does on other sizes than it comes with."""

from __future__ import annotations

import json
from itertools import islice, product
from pathlib import Path

import msgspec

from core_engine.loading import write_random_weights

_ENDS = ("<|endoftext|>", "<|im_end|>")
_SEED = 0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a Llama. The vocabulary needs room for the 256 bytes and two special tokens."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int = 2048


SHAPES = {
    "1.1b": Shape(  # TinyLlama's
        hidden_size=2048,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        intermediate_size=5632,
        vocab_size=32_000,
    )
}


def write_random_model(shape: Shape, directory: Path) -> None:
    """A directory that can be served: config.json, tokenizer.json and bfloat16 safetensors. Raises OSError.

    What it says is noise; how long it takes and what memory it needs is as of any model of that shape.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokens = _write_tokenizer(shape.vocab_size, directory)
    config = {
        **msgspec.to_builtins(shape),
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": tokens[_ENDS[0]],
        "eos_token_id": tokens[_ENDS[1]],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    write_random_weights(directory, _SEED)


def _write_tokenizer(vocab_size: int, directory: Path) -> dict[str, int]:
    """Byte-level BPE whose tokens are the bytes and as many pairs of them as make up the size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(islice(product(alphabet, alphabet), vocab_size - len(alphabet) - len(_ENDS)))
    tokens = {token: place for place, token in enumerate([*alphabet, *map("".join, pairs), *_ENDS])}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_ENDS))
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"bos_token": _ENDS[0], "eos_token": _ENDS[1], "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return tokens
