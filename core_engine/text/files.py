"""TokenizerFiles: what the files beside a tokenizer say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from core_engine.errors import ModelError

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx")
_NO_LIMIT = 1_000_000_000  # tokenizers write a huge number where they know no limit


class TokenizerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a tokenizer from the directory of its model.

    `templates` are chat templates by name, the ordinary one being "default"; `special_tokens` the
    texts of bos_token, eos_token and so on, where they exist; `adds_bos` and `adds_eos` are None
    where the tokenizer file itself decides.
    """

    templates: dict[str, str]
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...]
    max_model_len: int | None
    adds_bos: bool | None
    adds_eos: bool | None


def read_tokenizer_files(directory: Path) -> TokenizerFiles:
    """Read a model's directory in the layout of Hugging Face; absent files are no error, broken ones a ModelError."""
    tokenizer = _read_json(directory / "tokenizer_config.json")
    model = _read_json(directory / "config.json")
    generation = _read_json(directory / "generation_config.json")
    named = {**_read_json(directory / "special_tokens_map.json"), **tokenizer}
    text_model = model.get("text_config")  # where a model of several kinds of data keeps its language model
    models = [model, text_model] if isinstance(text_model, dict) else [model]
    return TokenizerFiles(
        templates=_templates(directory, tokenizer),
        special_tokens={key: text for key in _NAMED_TOKENS if (text := _token_text(named.get(key))) is not None},
        eos_token_ids=next(filter(None, map(_eos_ids, [generation, *models])), ()),
        max_model_len=_max_model_len(models, tokenizer),
        adds_bos=tokenizer.get("add_bos_token"),
        adds_eos=tokenizer.get("add_eos_token"),
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} isn't valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} must hold a JSON object, not a {type(data).__name__}")
    return data


def _templates(directory: Path, tokenizer: dict[str, Any]) -> dict[str, str]:
    """Chat templates by name; files of their own win over the tokenizer's configuration."""
    templates: dict[str, str] = {}
    for source in (tokenizer, _read_json(directory / "chat_template.json")):
        configured = source.get("chat_template")
        if isinstance(configured, str):
            templates["default"] = configured
        elif isinstance(configured, list):
            templates.update({entry["name"]: entry["template"] for entry in configured})
    named = sorted((directory / "additional_chat_templates").glob("*.jinja"))
    for path in (*named, directory / "chat_template.jinja"):
        if path.is_file():
            name = "default" if path.name == "chat_template.jinja" else path.stem
            templates[name] = path.read_text(encoding="utf-8")
    return templates


def _token_text(token: Any) -> str | None:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _eos_ids(configuration: dict[str, Any]) -> tuple[int, ...]:
    ids = configuration.get("eos_token_id")
    if isinstance(ids, int):
        return (ids,)
    return tuple(id for id in ids if isinstance(id, int)) if isinstance(ids, list) else ()


def _max_model_len(models: list[dict[str, Any]], tokenizer: dict[str, Any]) -> int | None:
    for limit in (*(model.get(key) for model in models for key in _LENGTH_KEYS), tokenizer.get("model_max_length")):
        if isinstance(limit, int | float) and 0 < limit < _NO_LIMIT:
            return int(limit)
    return None
