"""A journal of what an engine was asked and what it decided: its lines, and who writes them.

JSON, one line each. No prompt, no text; tenants are pseudonyms.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections import deque
from pathlib import Path
from typing import BinaryIO

import msgspec

from core_engine.request import Kind

_log = logging.getLogger("jitney.journal")


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="request"):
    """One request, at its end."""

    request_id: str
    arrival_seconds: float
    tenant: str  # a pseudonym
    class_name: str
    priority: int
    weight: float
    kind: Kind
    n: int
    max_tokens: int | None  # as the client gave it
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    finish_reason: str
    reason: str | None  # of a rejection
    queue_seconds: float | None
    prefill_seconds: float | None
    decode_seconds: float | None
    total_seconds: float
    block_hashes: list[str]  # of the full prompt blocks, salted


class IterationLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="iteration"):
    """One iteration: who ran, and what else was decided and why.

    `rows` are (sequence id, tokens computed before, tokens computed); `started` (sequence id,
    request id, sample index).
    """

    iteration: int
    started_seconds: float
    duration_seconds: float
    policy_version: int
    rows: list[tuple[int, int, int]]
    prefill_tokens: int
    decode_tokens: int
    idle_rows: int
    started: list[tuple[int, str, int]]
    preempted: dict[int, str]
    finished: dict[int, str]
    held: dict[str, int]
    shortages: dict[str, int]
    num_running: int
    num_waiting: int
    num_free_blocks: int
    delivered: bool


class DroppedLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="dropped"):
    """So many lines are missing here: they came faster than they could be written."""

    lines: int


Line = RequestLine | IterationLine | DroppedLine


class Journal:
    """Appends lines to a file, on a thread of its own, and begins a new file when one is full.

    `path` is the newest file, older ones have `.1`, `.2`, ... appended; at most `max_files` of about `max_bytes`
    are kept, and at most `max_lines` lines are on their way at any time.
    """

    def __init__(self, path: Path, *, max_bytes: int, max_files: int, max_lines: int) -> None:
        self.dropped_lines = 0
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._max_lines = max_lines
        self._lines: deque[Line] = deque()
        self._missing = 0  # dropped since the last line that was taken
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, line: Line) -> None:
        """Take a line, or drop it where too many are on their way; never waits for the disk."""
        with self._changed:
            if len(self._lines) >= self._max_lines:
                self.dropped_lines += 1
                self._missing += 1
                return
            if self._missing:
                self._lines.append(DroppedLine(lines=self._missing))
                self._missing = 0
            self._lines.append(line)
            if self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Wait until all lines are written, and close the file; a later line opens it again."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._closing = True
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        file: BinaryIO | None = None
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closing)
                lines, self._lines = self._lines, deque()
                closing = self._closing
            written = 0
            try:
                for line in lines:
                    file = self._append(file, msgspec.json.encode(line) + b"\n")
                    written += 1
                if file is not None:
                    file.flush()
            except OSError as error:
                _log.error("%s can't be written: %s", self._path, error)
                if file is not None:
                    with contextlib.suppress(OSError):
                        file.close()
                    file = None
                with self._changed:
                    self.dropped_lines += len(lines) - written
                    self._missing += len(lines) - written
        if file is not None:
            file.close()

    def _append(self, file: BinaryIO | None, line: bytes) -> BinaryIO:
        if file is None:
            file = self._path.open("ab")
        if file.tell() and file.tell() + len(line) > self._max_bytes:
            file.close()
            self._rotate()
            file = self._path.open("ab")
        file.write(line)
        return file

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{age}") for age in range(1, self._max_files))]
        names[-1].unlink(missing_ok=True)
        for newer, older in reversed(list(itertools.pairwise(names))):
            if newer.exists():
                newer.rename(older)
