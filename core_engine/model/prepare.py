"""From what the user calls a model to a directory with everything that serving it needs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from core_engine.errors import ModelError
from core_engine.model import embedded
from core_engine.model.cache import cached_directory, identity
from core_engine.model.vet import vet_directory

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]  # neither pickles nor code


def prepare(model: str) -> Path:
    """The model's directory, fetched or converted into the cache if need be. Raises ModelError."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars of libraries fill a log with their steps
    if model == embedded.NAME:
        return embedded.prepare()
    path = Path(model).expanduser()
    if path.is_dir():
        return prepare_directory(path.resolve())
    if path.is_file():
        return _prepare_gguf(path.resolve())
    if path.suffix == ".gguf" or path.is_absolute() or not _HUB_ID.fullmatch(model):
        raise ModelError(
            f"there is no model '{model}': neither a directory nor a file of that name; give a model directory, "
            f"a .gguf file, a hub id such as owner/name, or '{embedded.NAME}', the model that comes with Jitney"
        )
    return prepare_directory(_fetch_from_hub(model))


def prepare_directory(directory: Path) -> Path:
    """The directory itself if it is complete, else one in the cache that links to its weights and has a tokenizer.json.

    Raises ModelError for what can't or may not be served.
    """
    vet_directory(directory)
    if (directory / "tokenizer.json").is_file():
        return directory
    files = sorted(file for file in directory.iterdir() if file.is_file())

    def build(target: Path) -> None:
        from core_engine.model.convert import convert_tokenizer

        for file in files:
            (target / file.name).symlink_to(file)
        convert_tokenizer(directory, target)

    return cached_directory(f"{directory.name}-{identity(files)}", build)


def _prepare_gguf(path: Path) -> Path:
    if path.suffix != ".gguf":
        raise ModelError(f"{path} is a file, but not a .gguf one; for safetensors give the directory they are in")

    def build(target: Path) -> None:
        from core_engine.model.convert import convert_gguf

        convert_gguf(path, target)

    directory = cached_directory(f"{path.stem}-{identity([path])}", build)
    vet_directory(directory)
    return directory


def _fetch_from_hub(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"'{hub_id}' is no local directory and could not be had from a model hub: {error}; "
            "check the id and the connection, or give a directory or a .gguf file"
        ) from error
