"""Results of measurements in a file, so that a long series can be made in several turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.bench.quiet import Disturbed, Watch, is_quiet

Result = TypeVar("Result")


class WrongFile(Exception):
    """A file can't keep the results: it holds something else."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    foreign_cores: float
    result: Any


class Kept:
    """Results by key: each is made once, and what the file has is not made again.

    `path`: None keeps them for this process alone. Raises WrongFile.
    """

    def __init__(self, path: Path | None, *, force: bool = False) -> None:
        """With `force` what was measured while others computed is taken all the same."""
        self._path = path
        self._force = force
        try:
            lines = path.read_bytes().splitlines() if path is not None and path.exists() else []
            decoded = [msgspec.json.decode(line, type=_Line) for line in lines]
        except msgspec.MsgspecError as error:
            raise WrongFile(f"{path} holds no results of an earlier turn ({error}); name another file") from error
        self._lines = {line.key: line for line in decoded}

    def __contains__(self, key: str) -> bool:
        return key in self._lines

    @property
    def foreign_cores(self) -> float:
        """Of others, during the measurement that they disturbed most."""
        return max((line.foreign_cores for line in self._lines.values()), default=0.0)

    def measured(self, key: str, kind: type[Result], measure: Callable[[], Result]) -> Result:
        """The result of that key; raises Disturbed, and keeps nothing, where others computed meanwhile."""
        if key not in self._lines:
            watch = Watch()
            result = measure()
            foreign_cores = watch.foreign_cores()
            if not is_quiet(foreign_cores) and not self._force:
                raise Disturbed(foreign_cores)
            self._add(_Line(key=key, foreign_cores=foreign_cores, result=result))
        return self._result(key, kind)

    def computed(self, key: str, kind: type[Result], compute: Callable[[], Result]) -> Result:
        """The result of that key, for which it doesn't matter how long it takes."""
        if key not in self._lines:
            self._add(_Line(key=key, foreign_cores=0.0, result=compute()))
        return self._result(key, kind)

    def _result(self, key: str, kind: type[Result]) -> Result:
        return msgspec.convert(msgspec.to_builtins(self._lines[key].result), kind, str_keys=True)

    def _add(self, line: _Line) -> None:
        self._lines[line.key] = line
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
