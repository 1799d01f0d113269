"""Checking an input file: which lines it has, or everything that is wrong with them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.batches.store import Line
from gateway.body import decode_body
from gateway.errors import ApiError
from gateway.protocol.batches import BatchError, BatchErrors, InputLine
from gateway.settings import GatewaySettings

MAX_LINES = 50_000
MAX_ERRORS = 100  # more would tell nobody more

_DECODER = msgspec.json.Decoder(InputLine)


class InvalidInput(Exception):
    """An input file that no batch can be made of."""

    def __init__(self, errors: list[BatchError]) -> None:
        super().__init__(f"{len(errors)} errors")
        self.errors = BatchErrors(errors)


def check_input(path: Path, endpoint: str, settings: GatewaySettings) -> tuple[str, list[Line]]:
    """Read a whole file, a line at a time; the model that all lines name, and the lines.

    Empty lines, a byte order mark at the start and CRLF are taken. What an endpoint says of a body is an error of that
    line alone, once it runs. Raises InvalidInput.
    """
    checker = _Checker(endpoint, settings)
    with path.open("rb") as file:
        for number, start, content in _lines(file, settings.max_body_bytes):
            checker.check(number, start, content)
            if len(checker.errors) >= MAX_ERRORS or len(checker.lines) > MAX_LINES:
                break
    if len(checker.lines) > MAX_LINES:
        checker.refuse("too_many_tasks", f"The file has more than {MAX_LINES} lines.", MAX_LINES + 1)
    if not checker.lines and not checker.errors:
        checker.refuse("empty_file", "The file has no lines.")
    if checker.errors:
        raise InvalidInput(checker.errors)
    return checker.model, checker.lines


def _lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, place and content of each line that isn't empty; None for one that is too long to be read."""
    number, start = 0, 0
    if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
        start = len(codecs.BOM_UTF8)
    file.seek(start)
    while content := file.readline(max_bytes + 1):
        number += 1
        too_long = len(content) > max_bytes and not content.endswith(b"\n")
        rest = content
        while too_long and rest and not rest.endswith(b"\n"):
            rest = file.readline(max_bytes)
        if too_long:
            yield number, start, None
        elif not content.isspace():
            yield number, start, content
        start = file.tell()


class _Checker:
    """Collects lines and errors."""

    def __init__(self, endpoint: str, settings: GatewaySettings) -> None:
        self.lines: list[Line] = []
        self.errors: list[BatchError] = []
        self.model = ""
        self._endpoint = endpoint
        self._settings = settings
        self._numbers: dict[str, int] = {}  # by custom_id

    def refuse(self, code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        self.errors.append(BatchError(code, message, line, param))

    def check(self, number: int, start: int, content: bytes | None) -> None:
        """Take in one line."""
        if content is None:
            limit = self._settings.max_body_bytes
            self.refuse("line_too_long", f"The line is longer than {limit} bytes.", number)
            return
        try:
            content.decode()  # the decoder doesn't look into what it skips
            line = decode_body(content, _DECODER, self._settings.max_json_depth)
        except UnicodeDecodeError:
            self.refuse("invalid_json_line", "The line is not UTF-8.", number)
            return
        except ApiError as error:
            code = "invalid_json_line" if error.code == "invalid_json" else "invalid_request"
            self.refuse(code, str(error).replace("The body", "The line"), number, error.param)
            return
        first = self._numbers.setdefault(line.custom_id, number)
        if first != number:
            message = f"The custom_id '{line.custom_id}' is that of line {first} already."
            self.refuse("duplicate_custom_id", message, number, "custom_id")
        elif line.url != self._endpoint:
            message = f"The url '{line.url[:100]}' is not the endpoint of the batch, '{self._endpoint}'."
            self.refuse("url_mismatch", message, number, "url")
        elif line.body.model != (self.model or line.body.model):
            message = f"The model '{line.body.model[:100]}' is not that of the first line, '{self.model[:100]}'."
            self.refuse("model_mismatch", message, number, "body.model")
        else:
            self.model = line.body.model
            self.lines.append(Line(number, line.custom_id, start, len(content)))
