"""Directories of the user's cache that appear whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from core_engine.errors import ModelError

_log = logging.getLogger("jitney.model")


class CacheError(ModelError):
    """The cache can't be written."""


def cache_root() -> Path:
    """The user's cache directory for Jitney: `$XDG_CACHE_HOME/jitney`, by default `~/.cache/jitney`."""
    return user_cache_path("jitney")


def digest(*parts: str) -> str:
    """A short name for these strings, in this order."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def identity(files: list[Path]) -> str:
    """A short name for the present state of these files, by path, size and time of change, not by content."""
    stats = [(file.resolve(), file.stat()) for file in files]
    return digest(*(f"{path}|{stat.st_size}|{stat.st_mtime_ns}" for path, stat in stats))


def cached_directory(name: str, build: Callable[[Path], None], section: str = "models") -> Path:
    """The directory `name` under `section` of the cache, filled by `build` if it isn't there.

    `build` works in a directory beside it that is renamed at the end, so what is found is whole
    even if a build was interrupted; of several processes one builds and the others wait. Raises
    CacheError where the cache can't be written, and whatever `build` raises.
    """
    target = cache_root() / section / name
    if not target.is_dir():
        try:
            _build_once(target, build)
        except OSError as error:
            raise CacheError(
                f"{name} can't be put into the cache, {target.parent}: {error}; make room or make it writable, or "
                "name another place by XDG_CACHE_HOME"
            ) from error
    return target


def _build_once(target: Path, build: Callable[[Path], None]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(target.parent / f".{target.name}.lock"):
        if target.is_dir():
            return
        for abandoned in target.parent.glob(f".{target.name}.*.partial"):
            shutil.rmtree(abandoned)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        try:
            build(partial)
            partial.chmod(0o755)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("another process is preparing the same; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
