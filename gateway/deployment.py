"""Deployment: which models are served and how, from the options of command line, file and admin API."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from core_engine import ConfigurationError, EngineConfig, checked, model_name

ModelName = Annotated[str, msgspec.Meta(pattern=r"^[^\s\x00-\x1f\x7f]{1,256}$")]

ToolParser = Literal["auto", "none", "hermes", "llama", "mistral", "pythonic", "json"]
ReasoningParser = Literal["auto", "none", "think"]

_MEMORY = {"kv_memory_bytes", "kv_memory_fraction"}


class Parsers(msgspec.Struct, frozen=True, kw_only=True):
    """How calls of tools and reasoning are found in what a model writes; "auto": as its chat template says."""

    tool_parser: ToolParser = "auto"
    reasoning_parser: ReasoningParser = "auto"


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What clients call a model; without a name it is called after what it is loaded from."""

    name: ModelName | None = None
    aliases: tuple[ModelName, ...] = ()


PARSERS = Parsers.__struct_fields__
OPTIONS = tuple(name for name in EngineConfig.__struct_fields__ if name != "memory_sharers")  # the gateway counts these
_NAMES = Names.__struct_fields__
_OF_MODEL = (*_NAMES, *PARSERS, *(name for name in OPTIONS if name != "served_model_name"))


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One model: its name in answers and labels, its engine's options, its parsers, and other names for clients."""

    name: str
    config: EngineConfig
    parsers: Parsers = Parsers()
    aliases: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The models of a deployment, each a table of options, and other names for them, from alias to name."""

    models: tuple[dict[str, Any], ...] | None = None
    embedding_models: tuple[dict[str, Any], ...] = ()
    aliases: dict[ModelName, ModelName] = {}


class Deployment:
    """The models named at start, and the options that they share with all that are loaded later.

    `options` has fields of EngineConfig and Parsers for all models, `models`, a table for each, which wins over them,
    `embedding_models`, tables of more, and `aliases` (from alias to name). Raises ConfigurationError, and
    msgspec.ValidationError for a shared option out of range.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        shared = dict(options)
        named = checked({name: shared.pop(name) for name in Named.__struct_fields__ if name in shared}, Named)
        self._parsers = {name: shared.pop(name) for name in PARSERS if name in shared}
        checked(self._parsers, Parsers)
        checked(shared, EngineConfig)
        tables: Sequence[dict[str, Any]] | None = named.models
        if tables is not None and "model" in shared:
            raise ConfigurationError("give either `model`, for a single one, or [[models]]")
        tables = tables or [{"model": shared.pop("model", EngineConfig().model)}]
        name = shared.pop("served_model_name", None)
        if name is not None and len(tables) > 1:
            raise ConfigurationError("served_model_name names a single model: write --model NAME=MODEL for several")
        if name is not None:
            tables = [{"name": name} | tables[0]]
        tables = [*tables, *({"task": "embed"} | table for table in named.embedding_models)]
        self._shared = shared
        num_sharers = sum(map(_shares_memory, tables))
        self.models = _with_aliases([self.model(table, num_sharers) for table in tables], named.aliases)

    def model(self, table: Mapping[str, Any], num_sharers: int) -> ModelSettings:
        """The model that a table describes; raises ConfigurationError.

        Unless the table gives it memory of its own, it has one of `num_sharers` parts of what is there.
        """
        check_names(table, _OF_MODEL, "a model's options")
        if "model" not in table:
            raise ConfigurationError("a model's options lack `model`: a directory, a .gguf file or a hub id")
        engine = self._shared | {key: value for key, value in table.items() if key not in (*_NAMES, *PARSERS)}
        parsing = self._parsers | {key: value for key, value in table.items() if key in PARSERS}
        try:
            names = checked({key: table[key] for key in _NAMES if key in table}, Names)
            config = checked(engine, EngineConfig)
            parsers = checked(parsing, Parsers)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"model {table.get('name') or table.get('model')}: {error}") from error
        name = names.name or model_name(config)
        config = msgspec.structs.replace(
            config, served_model_name=name, memory_sharers=num_sharers if _shares_memory(table) else 1
        )
        return ModelSettings(name=name, config=config, parsers=parsers, aliases=names.aliases)


def _shares_memory(table: Mapping[str, Any]) -> bool:
    """Whether the model takes a part of what is there; one for embeddings keeps nothing of a text."""
    return table.get("task") != "embed" and not _MEMORY & table.keys()


def check_names(options: Iterable[str], known: Sequence[str], of: str) -> None:
    """Raise ConfigurationError, with the near ones, for a name that isn't known."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "see `jitney serve --help`"
            raise ConfigurationError(f"{of}: there is no option {name!r}; {hint}")


def _with_aliases(models: list[ModelSettings], aliases: Mapping[str, str]) -> list[ModelSettings]:
    """The models with these aliases too; raises ConfigurationError for one of no model and for a name used twice."""
    for alias, name in aliases.items():
        if name not in [model.name for model in models]:
            known = ", ".join(model.name for model in models)
            raise ConfigurationError(f"the alias {alias}={name} is of no model that is served here: {known}")
    models = [
        msgspec.structs.replace(
            model, aliases=(*model.aliases, *(alias for alias, name in aliases.items() if name == model.name))
        )
        for model in models
    ]
    seen: set[str] = set()
    for name in [name for model in models for name in (model.name, *model.aliases)]:
        if name in seen:
            raise ConfigurationError(f"two models are called {name!r}: give one another name, --model NAME=MODEL")
        seen.add(name)
    return models
