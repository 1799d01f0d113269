"""What can be told from a model's files alone: whether it may be read, and whether it can be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core_engine.errors import ModelError

_RECURRENT = {
    "bailing_hybrid", "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2",
    "lfm2_moe", "mamba", "mamba2", "minimax", "nemotron_h", "olmo_hybrid", "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2",
}  # fmt: skip
_ALIBI = {"bloom", "mpt"}
_INDEXED = {
    "axk2",
    "deepseek_v32",
    "deepseek_v4",
    "doge",
    "glm_moe_dsa",
    "hy_v4",
    "minimax_m3_vl",
    "minimax_m3_vl_text",
}
_LAYER_TYPES = {"attention", "chunked_attention", "full_attention", "mlp", "sliding_attention"}
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model; raises ModelError where it isn't one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a {type(content).__name__}, but a JSON object is needed")
    return content


def vet_directory(directory: Path) -> dict[str, Any]:
    """The model's configuration, once its files have been found acceptable.

    Raises ModelError for a directory without configuration or safetensors, for a model that brings
    its own code, and for architectures that selective batching can't run.
    """
    if not (directory / "config.json").is_file():
        raise ModelError(
            f"{directory} is no model directory: it has no config.json; "
            "give a directory in Hugging Face's format or a .gguf file"
        )
    config = read_json(directory / "config.json")
    _vet_code(directory, config)
    vet_architecture(config, str(directory))
    _vet_weights(directory)
    return config


def vet_architecture(config: dict[str, Any], where: str) -> None:
    """Raise ModelError for a configuration that can't be served, saying why."""
    model_type = config.get("model_type")
    if config.get("is_encoder_decoder"):
        raise ModelError(
            f"{where}: '{model_type}' is an encoder-decoder, which computes its prompt by another network than its "
            "answer; only decoders can be served"
        )
    text_config = config.get("text_config") or config
    other_layers = sorted(set(text_config.get("layer_types") or ()) - _LAYER_TYPES)
    if model_type in _RECURRENT or (other_layers and model_type not in _INDEXED):
        kind = f"has layers of type {', '.join(other_layers)}" if other_layers else "keeps a recurrent state"
        raise ModelError(
            f"{where}: '{model_type}' {kind} (Mamba, RWKV, linear attention, convolution and the like), and only "
            "models that mix tokens by attention alone can be batched selectively"
        )
    if model_type in _INDEXED:
        raise ModelError(
            f"{where}: '{model_type}' picks the keys of a query by an index of its own (sparse attention), which "
            "isn't supported"
        )
    if model_type in _ALIBI or config.get("alibi"):
        raise ModelError(
            f"{where}: '{model_type}' puts positions into attention by ALiBi biases, which aren't supported"
        )
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else "unknown"
        raise ModelError(
            f"{where}: its weights are packed by the quantisation method '{method}', which isn't supported; "
            "use the unquantised model, or a .gguf file, which is unpacked when it is converted"
        )


def _vet_code(directory: Path, config: dict[str, Any]) -> None:
    """A model of a type that transformers has is read by transformers' code, never by code beside the weights."""
    if not config.get("auto_map"):
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if config.get("model_type") not in CONFIG_MAPPING_NAMES:
        raise ModelError(
            f"{directory} needs code that comes with the model (auto_map in config.json), and such code is never run; "
            f"this version of transformers has no '{config.get('model_type')}' of its own"
        )


def _vet_weights(directory: Path) -> None:
    if any(directory.glob("*.safetensors")):
        return
    pickles = sorted(file.name for file in directory.iterdir() if file.suffix in _PICKLES)
    if pickles:
        raise ModelError(
            f"{directory} has its weights as pickle only ({', '.join(pickles[:3])}), which can run code when it is "
            "read and is never opened; convert them to safetensors"
        )
    raise ModelError(f"{directory} has no weights: no *.safetensors beside its config.json")
