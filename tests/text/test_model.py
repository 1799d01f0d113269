"""TextModel: loading, limits, and the tokens around a raw prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core_engine.errors import InvalidRequest, ModelError
from core_engine.text import TextModel, load_text_model
from tests.support.tiny_model import write_tiny_model


def rewrite(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**data, **changes}), encoding="utf-8")


def test_what_a_model_says_of_itself(byte_level: TextModel) -> None:
    assert byte_level.has_chat_template
    assert byte_level.max_model_len == 2048
    assert byte_level.eos_token_ids == tuple(byte_level.encode("<|im_end|>"))
    assert byte_level.special_token_ids == set(byte_level.encode("<|endoftext|><|im_start|><|im_end|>"))
    assert byte_level.vocab_size == byte_level.encode("</think>")[0] + 1


def test_special_tokens_spelled_in_a_raw_prompt_are_parsed(metaspace: TextModel) -> None:
    assert metaspace.encode("</s>", add_special_tokens=False) == [2]
    assert metaspace.encode("</s>") == [1, 2]


def test_lone_surrogates_do_no_harm(byte_level: TextModel) -> None:
    assert byte_level.decode(byte_level.encode("a\ud800b")) == "a\ufffdb"
    assert "\ufffd" in byte_level.decode(byte_level.render_chat([{"role": "user", "content": "\udfff"}]))


@pytest.mark.parametrize("token_id", [-1, 100_000])
def test_an_unknown_token_id_is_named(byte_level: TextModel, token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=f"token id {token_id} isn't in the vocabulary"):
        byte_level.decode([1, token_id])


def test_a_token_can_be_shown_alone(byte_level: TextModel) -> None:
    first, *_ = byte_level.encode("🚌")
    assert byte_level.token_text(first) in {"🚌", "\ufffd"}
    assert byte_level.token_text(1) == "<|im_start|>"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 5]),
        ({"add_bos_token": False}, [5]),
        ({"add_bos_token": True, "add_eos_token": True}, [1, 5, 2]),
        ({"add_eos_token": True}, [5, 2]),
    ],
)
def test_the_configuration_says_which_tokens_surround_a_prompt(
    directory: Path, settings: dict[str, bool], expected: list[int]
) -> None:
    write_tiny_model(directory, kind="metaspace")
    rewrite(directory / "tokenizer_config.json", **settings)
    ids = load_text_model(directory).encode("a")
    assert [token for token in ids if token < 3] == [token for token in expected if token < 3]
    assert len(ids) == len(expected)


@pytest.mark.parametrize(
    ("name", "changes", "eos", "length"),
    [
        ("generation_config.json", {"eos_token_id": [0, 1]}, (0, 1, 2), 2048),
        ("config.json", {"eos_token_id": 0, "max_position_embeddings": None, "n_positions": 99}, (0, 2), 99),
        ("config.json", {"max_position_embeddings": None}, (2,), 2048),
        ("config.json", {"max_position_embeddings": None, "text_config": {"max_position_embeddings": 7}}, (2,), 7),
    ],
)
def test_limits_are_read_where_models_keep_them(
    directory: Path, name: str, changes: dict[str, Any], eos: tuple[int, ...], length: int
) -> None:
    write_tiny_model(directory)
    rewrite(directory / name, **changes)
    model = load_text_model(directory)
    assert (model.eos_token_ids, model.max_model_len) == (eos, length)


def test_special_tokens_may_be_objects_in_a_file_of_their_own(directory: Path) -> None:
    write_tiny_model(directory, chat_template="{{ eos_token }}")
    settings = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    del settings["eos_token"]
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    rewrite(directory / "special_tokens_map.json", eos_token={"content": "<|endoftext|>"})
    assert load_text_model(directory).render_chat([]) == [0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", None, "is missing"),
        ("tokenizer.json", "{}", "can't be read as a tokenizer"),
        ("tokenizer_config.json", "{", "isn't valid JSON"),
        ("config.json", "[]", "must hold a JSON object, not a list"),
    ],
)
def test_a_broken_directory_is_named(directory: Path, name: str, text: str | None, message: str) -> None:
    write_tiny_model(directory)
    if text is None:
        (directory / name).unlink()
    else:
        (directory / name).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=f"{name}.*{message}"):
        load_text_model(directory)
