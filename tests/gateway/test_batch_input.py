"""Input files of batches: what is read, and what is refused with the lines at fault."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from core_engine.text import TextModel
from gateway.batches import checking
from tests.gateway.batching import create, ended, jsonl, line, read, sdk
from tests.gateway.running import CHAT, RunningGateway, running_gateway

MAX_LINE_BYTES = 4096


@pytest.fixture(scope="module")
def keeper(text_model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    data = str(tmp_path_factory.mktemp("data"))
    with running_gateway(text_model, data_dir=data, max_body_bytes=MAX_LINE_BYTES) as running:
        yield running


@pytest.fixture
def server(keeper: RunningGateway) -> RunningGateway:
    keeper.engine.submitted.clear()
    return keeper


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", [("empty_file", None)]),
        (b"\n\r\n \n", [("empty_file", None)]),
        (jsonl(line(1), line(2)) + b"{\n", [("invalid_json_line", 3)]),
        (jsonl(line(1)) + b'\n\n{"custom_id": "\xff"}\n' + jsonl(line(2)), [("invalid_json_line", 4)]),
        (json.dumps(line(1)).replace("Number", "\\ud800").encode(), [("invalid_json_line", 1)]),
        (json.dumps(line(1)).replace("line-1", "\\ud800").encode(), [("invalid_json_line", 1)]),
        (json.dumps(line(1)).encode("utf-16"), [("invalid_json_line", 1)]),
        (b"[" * 3000, [("invalid_json_line", 1)]),
        (jsonl(line(1), line(2), line(1)), [("duplicate_custom_id", 3)]),
        (jsonl(line(1), line(2, CHAT)), [("url_mismatch", 2)]),
        (jsonl(line(1), line(2, model="other")), [("model_mismatch", 2)]),
        (jsonl(line(1) | {"method": "GET"}), [("invalid_request", 1)]),
        (jsonl(line(1) | {"custom_id": 1}), [("invalid_request", 1)]),
        (jsonl({"custom_id": "x"}, line(2), {}), [("invalid_request", 1), ("invalid_request", 3)]),
        (jsonl(line(1), line(2, prompt="x" * MAX_LINE_BYTES), line(3)), [("line_too_long", 2)]),
        (b"x" * (3 * MAX_LINE_BYTES), [("line_too_long", 1)]),
        (b"\n" * 10 + b"{}\n" * 1000, [("invalid_request", number) for number in range(11, 111)]),
    ],
)
def test_a_wrong_file_is_refused_with_the_lines_at_fault(
    server: RunningGateway, content: bytes, expected: list[tuple[str, int | None]]
) -> None:
    client = sdk(server)
    batch = ended(client, create(client, content))
    errors = (batch.errors.data or []) if batch.errors else []
    assert [(error.code, error.line) for error in errors] == expected
    assert all(error.message for error in errors)
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert not server.engine.submitted


def test_too_many_lines_are_refused(server: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MAX_LINES", 10)
    client = sdk(server)
    assert ended(client, create(client, jsonl(*map(line, range(10))))).status == "completed"
    batch = ended(client, create(client, jsonl(*map(line, range(11)))))
    assert batch.errors is not None
    assert [(error.code, error.line) for error in batch.errors.data or []] == [("too_many_tasks", 11)]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + jsonl(line(1), line(2)),
        jsonl(line(1), line(2)).replace(b"\n", b"\r\n"),
        jsonl(line(1), line(2)).rstrip(),
        b"\n\n" + jsonl(line(1)) + b"   \n\n" + jsonl(line(2)),
    ],
    ids=["byte order mark", "CRLF", "no last line feed", "empty lines"],
)
def test_files_of_other_editors_are_read(server: RunningGateway, content: bytes) -> None:
    client = sdk(server)
    batch = ended(client, create(client, content))
    assert batch.status == "completed"
    assert [result["custom_id"] for result in read(client, batch.output_file_id)] == ["line-1", "line-2"]
