"""Convert models into what Jitney serves: safetensors in bfloat16 and a tokenizer.json that stands alone."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.integrations.gguf import read_gguf_metadata

from core_engine.errors import ModelError
from core_engine.model.splitting import restore_splitting
from core_engine.model.vet import vet_architecture


def convert_gguf(path: Path, target: Path) -> None:
    """Unpack a .gguf file: weights, configuration, tokenizer and chat template, into `target`.

    Raises ModelError for an architecture or a tokenizer that can't be converted faithfully.
    """
    try:
        metadata, _ = read_gguf_metadata(str(path))
        architecture = metadata["general.architecture"]
        splitting = metadata.get("tokenizer.ggml.pre")
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        vet_architecture(config.to_dict(), str(path))
        # Left packed, the weights would be unpacked again for every product.
        model = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{path} can't be converted by transformers {transformers.__version__}: {type(error).__name__}: {error}"
        ) from error
    restore_splitting(tokenizer.backend_tokenizer, splitting, where=f"{path} ({architecture})")
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def convert_tokenizer(directory: Path, target: Path) -> None:
    """Write `tokenizer.json` into `target` for a model that has its tokenizer in an older form.

    Raises ModelError where transformers can't convert it.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
        backend = tokenizer.backend_tokenizer
    except Exception as error:
        raise ModelError(
            f"{directory} has no tokenizer.json, and transformers {transformers.__version__} can't make one of what "
            f"is there: {type(error).__name__}: {error}"
        ) from error
    backend.save(str(target / "tokenizer.json"))
