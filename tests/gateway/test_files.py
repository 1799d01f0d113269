"""`/v1/files`: uploads that go to disk, whose they are, and how long they stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from core_engine import KeyConfig
from core_engine.text import TextModel
from gateway.batches.upload import safe_filename
from tests.gateway.raw import envelope, eventually, head, read_all, statuses
from tests.gateway.running import RunningGateway, running_gateway
from tests.support.plain_http import openai_client

LIMIT_BYTES = 300_000
ROOM_BYTES = 1_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def keeper(text_model: TextModel, data: Path) -> Iterator[RunningGateway]:
    """A gateway with small limits and two tenants."""
    keys = (KeyConfig.plain("one"), KeyConfig.plain("two"))
    limits = {"max_file_size_bytes": LIMIT_BYTES, "file_storage_bytes": ROOM_BYTES}
    with running_gateway(text_model, data_dir=str(data), keys=keys, **limits) as running:
        yield running


@pytest.fixture
def server(keeper: RunningGateway) -> RunningGateway:
    """The same, without a file."""
    for key in ("one", "two"):
        client = sdk(keeper, key)
        for file in client.files.list():
            client.files.delete(file.id)
    return keeper


def sdk(server: RunningGateway, key: str = "one") -> openai.OpenAI:
    return openai_client(server.url, key)


def upload(server: RunningGateway, content: bytes, name: str = "in.jsonl", **fields: str) -> httpx.Response:
    return server.http.post(
        "/v1/files",
        data={"purpose": "batch", **fields},
        files={"file": (name, content)},
        headers={"authorization": "Bearer one"},
    )


def on_disk(data: Path) -> list[str]:
    return [path.name for folder in ("files", "incoming") for path in (data / folder).iterdir()]


def test_the_sdk_keeps_and_reads_files(server: RunningGateway, data: Path) -> None:
    client = sdk(server)
    content = os.urandom(200_000)
    file = client.files.create(
        file=("in.jsonl", content), purpose="batch", expires_after={"anchor": "created_at", "seconds": 7200}
    )
    assert (file.object, file.bytes, file.filename, file.purpose) == ("file", 200_000, "in.jsonl", "batch")
    assert file.expires_at == file.created_at + 7200
    assert client.files.retrieve(file.id) == file
    assert client.files.wait_for_processing(file.id) == file
    assert client.files.content(file.id).read() == content
    assert [found.id for found in client.files.list()] == [file.id]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)
    assert on_disk(data) == []


def test_files_come_in_pages(server: RunningGateway) -> None:
    client = sdk(server)
    made = [client.files.create(file=(f"{number}", b"x"), purpose="batch").id for number in range(5)]
    assert [file.id for file in client.files.list(limit=2)] == made[::-1]
    assert [file.id for file in client.files.list(limit=2, order="asc")] == made
    page = client.files.list(limit=2, after=made[3])
    assert ([file.id for file in page.data], page.has_more) == ([made[2], made[1]], True)
    assert client.files.list(purpose="batch_output").data == []
    for query in ("limit=0", "limit=10001", "limit=x", "order=up", "after=file-unknown"):
        response = server.http.get(f"/v1/files?{query}", headers={"authorization": "Bearer one"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == query.partition("=")[0]


def test_a_file_belongs_to_its_key(server: RunningGateway) -> None:
    mine, theirs = sdk(server, "one"), sdk(server, "two")
    file = mine.files.create(file=("in.jsonl", b"x"), purpose="batch")
    for ask in (theirs.files.retrieve, theirs.files.content, theirs.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(file.id)
    assert theirs.files.list().data == []
    with pytest.raises(openai.BadRequestError):
        theirs.files.list(after=file.id)
    with pytest.raises(openai.BadRequestError):
        theirs.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    assert mine.files.content(file.id).read() == b"x"


def test_a_file_is_taken_up_to_the_limit(server: RunningGateway, data: Path) -> None:
    assert upload(server, b"x" * LIMIT_BYTES).status_code == 200
    refused = upload(server, b"x" * (LIMIT_BYTES + 1))
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == "file_too_large"
    assert len(on_disk(data)) == 1


@pytest.mark.parametrize(
    "beginning", [b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n', b""]
)
def test_a_body_without_an_end_is_refused_while_it_is_read(
    server: RunningGateway, data: Path, beginning: bytes
) -> None:
    """Whether it is the file that is too large or what is around it: the client hears why, and nothing is kept."""
    size = 3 * LIMIT_BYTES
    with server.connect() as connection:
        connection.sendall(form_head(content_length=len(beginning) + size) + beginning + b"x" * size)
        raw = read_all(connection)
    assert statuses(raw) == [413]
    assert envelope(raw)["code"] == "file_too_large"
    assert on_disk(data) == []


def form_head(content_length: int, **headers: str) -> bytes:
    return head(
        "POST",
        "/v1/files",
        authorization="Bearer one",
        content_type="multipart/form-data; boundary=b",
        content_length=str(content_length),
        **headers,
    )


def test_who_asks_before_sending_is_told_at_once(server: RunningGateway) -> None:
    with server.connect() as connection:
        connection.sendall(form_head(10**9, expect="100-continue"))
        assert statuses(read_all(connection)) == [413]


def test_a_client_that_vanishes_leaves_nothing_behind(server: RunningGateway, data: Path) -> None:
    with server.connect() as connection:
        connection.sendall(form_head(content_length=200_000))
        connection.sendall(b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + b"x" * 100_000)
        assert eventually(lambda: len(on_disk(data)) == 1)
    assert eventually(lambda: on_disk(data) == [])


def test_the_space_for_files_ends(server: RunningGateway, data: Path) -> None:
    answers = [upload(server, b"x" * LIMIT_BYTES) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 507]
    assert answers[3].json()["error"]["code"] == "storage_full"
    assert answers[3].headers["x-should-retry"] == "false"
    assert len(on_disk(data)) == 3
    sdk(server).files.delete(answers[0].json()["id"])
    assert upload(server, b"x" * LIMIT_BYTES).status_code == 200


@pytest.mark.parametrize(
    ("content_type", "body", "status", "param"),
    [
        ("application/json", b"{}", 415, None),
        ("multipart/form-data", b"", 415, None),
        ("multipart/form-data; boundary=b", b"", 400, None),
        ("multipart/form-data; boundary=b", b"no form at all", 400, None),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 400, "file"),
        ("multipart/form-data; boundary=b", b"--b\r\nnonsense\r\n\r\n\r\n--b--\r\n", 400, None),
        ("multipart/form-data; boundary=b", b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nx', 400, None),
        ("multipart/form-data; boundary=b", b"--b\r\ncontent-disposition: \xff\r\n\r\nx\r\n--b--\r\n", 400, None),
    ],
)
def test_what_is_no_form_is_refused(
    server: RunningGateway, data: Path, content_type: str, body: bytes, status: int, param: str | None
) -> None:
    headers = {"content-type": content_type, "authorization": "Bearer one"}
    response = server.http.post("/v1/files", content=body, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["param"] == param
    assert "Error(" not in response.text
    assert on_disk(data) == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "fine-tune"}, "purpose"),
        ({"purpose": "x" * 2000}, "purpose"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "60"}, "expires_after"),
        ({"expires_after[anchor]": "created_at"}, "expires_after"),
    ],
)
def test_wrong_fields_are_named(server: RunningGateway, data: Path, fields: dict[str, str], param: str) -> None:
    response = upload(server, b"x", **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert on_disk(data) == []


def test_the_form_may_begin_with_the_file(server: RunningGateway) -> None:
    parts = {"file": ("in.jsonl", b"content"), "purpose": (None, "batch")}
    response = server.http.post("/v1/files", files=parts, headers={"authorization": "Bearer one"})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        ("in.jsonl", "in.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\in.jsonl", "in.jsonl"),
        ("..", "upload.jsonl"),
        ("a\r\nb\x00c", "abc"),
        ("x" * 1000, "x" * 255),
        ("日本.jsonl", "日本.jsonl"),
    ],
)
def test_file_names_are_only_names(offered: str, kept: str) -> None:
    assert safe_filename(offered) == kept


def test_hostile_names_are_harmless_in_headers(server: RunningGateway) -> None:
    client = sdk(server)
    for name in ('a".jsonl', "日本.jsonl", "a;b=c", "%0d%0aset-cookie: x"):
        file = client.files.create(file=(name, b"content"), purpose="batch")
        response = client.files.with_raw_response.content(file.id)
        assert response.http_response.content == b"content"
        assert "set-cookie" not in response.headers


def test_without_a_data_directory_the_error_says_so(shared_gateway: RunningGateway) -> None:
    response = shared_gateway.http.get("/v1/files")
    assert response.status_code == 503
    assert response.headers["x-should-retry"] == "false"
