"""How the states of a text's tokens become its embedding, by the files that sentence-transformers writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from core_engine.errors import ModelError
from core_engine.model.vet import read_json

Mode = Literal["mean", "cls", "last"]

_MODES: dict[str, Mode] = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}


@dataclass(frozen=True, slots=True)
class Pooling:
    """Which states count, and whether the result is brought to length 1; `max_tokens` where the files set a limit."""

    mode: Mode = "mean"
    normalize: bool = False
    max_tokens: int | None = None

    def __call__(self, states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Embeddings `[texts, hidden]` in float32 of states `[texts, tokens, hidden]`, padded on the right."""
        states = states.float()
        if self.mode == "cls":
            pooled = states[:, 0]
        elif self.mode == "last":
            pooled = states[torch.arange(len(states), device=states.device), lengths - 1]
        else:
            counts = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
            pooled = (states * counts[:, :, None]).sum(1) / lengths[:, None]
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalize else pooled


def read_pooling(directory: Path) -> Pooling:
    """The pooling of a model's directory; without `modules.json` the mean, as sentence-transformers does it.

    Raises ModelError for modules and modes that aren't supported.
    """
    limit = _optional(directory / "sentence_bert_config.json").get("max_seq_length")
    modules = _modules(directory / "modules.json")
    mode: Mode = "mean"
    normalize = False
    for kind, path in modules:
        if kind == "Transformer" and not path:
            continue
        if kind == "Pooling":
            mode = _mode(directory / path / "config.json")
        elif kind == "Normalize":
            normalize = True
        else:
            raise ModelError(
                f"{directory / 'modules.json'} asks for the module {kind} at '{path}'; supported are a Transformer at "
                "the top, Pooling and Normalize"
            )
    return Pooling(mode, normalize, limit if isinstance(limit, int) else None)


def matryoshka_sizes(model_config: Any, size: int) -> tuple[int, ...]:
    """Lengths to which the model's embeddings may be cut, ascending; empty where it was not trained for that."""
    declared = getattr(model_config, "matryoshka_dimensions", None) or ()
    return tuple(sorted(each for each in declared if isinstance(each, int) and 0 < each <= size))


def _modules(path: Path) -> list[tuple[str, str]]:
    """(kind, path) of each, in order."""
    if not path.is_file():
        return []
    import json

    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is no list of modules with type and path: {error!r}") from error


def _mode(path: Path) -> Mode:
    config = read_json(path)
    named = config.get("pooling_mode")  # newer versions write the mode by its name
    wanted = [named] if isinstance(named, str) else []
    wanted += [key.removeprefix("pooling_mode_") for key, value in config.items() if value is True and "mode_" in key]
    modes = [_MODES.get(mode, mode) for mode in wanted]
    if len(modes) != 1 or modes[0] not in _MODES.values():
        raise ModelError(
            f"{path} asks for pooling by {' and '.join(modes) or 'nothing'}; supported is mean, cls or last"
        )
    return modes[0]  # type: ignore[return-value]


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
