"""Which models are served and how, from options: what is shared, what is a model's own, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from core_engine import ConfigurationError
from gateway.commands.options import Alias, NamedModel
from gateway.deployment import Deployment

A, B = {"model": "org/a"}, {"model": "org/b"}
EMBEDDER = {"model": "org/e", "task": "embed"}


def test_without_a_word_the_default_model_is_served() -> None:
    (model,) = Deployment({}).models
    assert (model.name, model.config.model, model.config.memory_sharers) == ("smollm2", "smollm2", 1)


def test_a_single_model_may_have_its_name_beside_it() -> None:
    for options in ({"model": "org/a"}, {"models": [A]}):
        (model,) = Deployment({**options, "served_model_name": "short", "dtype": "float32"}).models
        assert (model.name, model.config.served_model_name) == ("short", "short")
        assert (model.config.model, model.config.dtype) == ("org/a", "float32")


def test_a_model_is_named_after_what_it_is_loaded_from(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    (tmp_path / "file.gguf").touch()
    tables = [{"model": str(tmp_path / "my-model")}, {"model": str(tmp_path / "file.gguf")}, A]
    assert [model.name for model in Deployment({"models": tables}).models] == ["my-model", "file", "org/a"]


def test_a_models_own_options_win_over_the_shared_ones() -> None:
    options = {"block_size": 64, "policies": ["orca"], "models": [A, {**B, "block_size": 16, "policies": []}]}
    a, b = Deployment(options).models
    assert (a.config.block_size, a.config.policies) == (64, ("orca",))
    assert (b.config.block_size, b.config.policies) == (16, ())


@pytest.mark.parametrize(
    ("tables", "sharers"),
    [
        ([A], [1]),
        ([A, B], [2, 2]),
        ([A, {**B, "kv_memory_bytes": 1 << 20}], [1, 1]),
        ([A, {**B, "kv_memory_fraction": 0.5}, {"model": "org/c"}], [2, 1, 2]),
        ([A, EMBEDDER], [1, 1]),
    ],
)
def test_who_has_no_memory_of_its_own_shares_what_there_is(tables: list[dict[str, Any]], sharers: list[int]) -> None:
    assert [model.config.memory_sharers for model in Deployment({"models": tables}).models] == sharers


def test_embedding_models_come_beside_the_others() -> None:
    options = {"served_model_name": "chat", "embedding_models": [{"model": "org/e", "name": "minilm"}]}
    chat, embedder = Deployment(options).models
    assert (chat.name, chat.config.task) == ("chat", "generate")
    assert (embedder.name, embedder.config.task) == ("minilm", "embed")


def test_aliases_are_given_in_a_table_or_for_all() -> None:
    deployment = Deployment({"models": [{**A, "aliases": ["x"]}, B], "aliases": {"y": "org/a", "z": "org/b"}})
    assert [model.aliases for model in deployment.models] == [("x", "y"), ("z",)]


def test_a_model_that_is_loaded_later_has_the_shared_options() -> None:
    deployment = Deployment({"models": [{**A, "dtype": "float32"}], "block_size": 64})
    later = deployment.model({"model": "org/b", "name": "later"}, num_sharers=2)
    assert (later.name, later.config.block_size, later.config.dtype) == ("later", 64, "auto")
    assert later.config.memory_sharers == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"models": [A, A]}, "two models are called 'org/a'"),
        ({"models": [A, {**B, "aliases": ["org/a"]}]}, "org/a"),
        ({"models": [A], "aliases": {"x": "org/b"}}, "x=org/b"),
        ({"models": [A], "model": "org/b"}, "[[models]]"),
        ({"models": [A, B], "served_model_name": "x"}, "NAME=MODEL"),
        ({"models": [{**A, "dtyp": "float32"}]}, "did you mean dtype"),
        ({"models": [{**A, "served_model_name": "x"}]}, "served_model_name"),
        ({"models": [{**A, "memory_sharers": 3}]}, "memory_sharers"),
        ({"models": [{**A, "block_size": 3}]}, "block_size"),
        ({"models": [{**A, "name": "a\nb"}]}, "name"),
        ({"models": [{"name": "x"}]}, "lack `model`"),
        ({"models": [{**A, "token_limit": 4}]}, "token_limit"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Deployment(options)
    assert said in str(refused.value)


@pytest.mark.parametrize("options", [{"block_size": 3}, {"models": ["org/a"]}, {"aliases": ["x"]}])
def test_a_shared_option_of_a_wrong_kind_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        Deployment(options)


def test_models_on_the_command_line(tmp_path: Path) -> None:
    convert = NamedModel().convert
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert convert("org/a", None, None) == {"model": "org/a"}
    assert convert("short=/models/a", None, None) == {"name": "short", "model": "/models/a"}
    assert convert(str(odd), None, None) == {"model": str(odd)}
    for wrong in ("=x", "x="):
        with pytest.raises(click.BadParameter, match="NAME=MODEL"):
            convert(wrong, None, None)
    assert Alias().convert("a=b/c", None, None) == ("a", "b/c")
    for wrong in ("a", "=b", "a="):
        with pytest.raises(click.BadParameter, match="ALIAS=NAME"):
            Alias().convert(wrong, None, None)
