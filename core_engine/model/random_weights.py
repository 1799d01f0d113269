"""Random weights of a given shape on disk: for measurements, in which time depends on sizes alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

_SHARD_BYTES = 1 << 28
_DEVIATION = 0.02  # what most families are initialised with
_INTO_RESIDUAL = ("o_proj.weight", "down_proj.weight")  # less, so that sums don't grow with the depth (GPT-2)


def write_random_weights(directory: Path, seed: int) -> None:
    """Write bfloat16 safetensors for `directory`/config.json, of a Llama-like model: norms 1, biases 0, else normal.

    No more than one shard of about 256 MiB is in memory. Raises OSError where the disk has no room.
    """
    config = AutoConfig.from_pretrained(directory)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tied = model._tied_weights_keys if config.tie_word_embeddings else ()
    drawn = torch.Generator().manual_seed(seed)
    residual = _DEVIATION / math.sqrt(2 * config.num_hidden_layers)
    shard: dict[str, torch.Tensor] = {}
    files: dict[str, str] = {}
    total = held = 0

    def flush() -> None:
        nonlocal held
        file = f"model-{len(set(files.values())) + 1:05d}.safetensors"
        save_file(shard, directory / file, metadata={"format": "pt"})
        files.update(dict.fromkeys(shard, file))
        shard.clear()
        held = 0

    for name, like in model.state_dict().items():
        if name in tied:
            continue
        if like.ndim == 1:
            weight = torch.full(like.shape, float(name.endswith("weight")), dtype=torch.bfloat16)
        else:
            deviation = residual if name.endswith(_INTO_RESIDUAL) else _DEVIATION
            weight = torch.empty(like.shape, dtype=torch.bfloat16).normal_(0, deviation, generator=drawn)
        shard[name] = weight
        held += weight.nbytes
        total += weight.nbytes
        if held >= _SHARD_BYTES:
            flush()
    if shard:
        flush()
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
