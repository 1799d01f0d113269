"""`/v1/embeddings` over HTTP, with a simulated embedding model beside a simulated chat model."""

from __future__ import annotations

import base64
import re
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from core_engine.text import TextModel, load_text_model
from tests.gateway.batching import create, ended, jsonl, line, read
from tests.support.plain_http import openai_client
from tests.support.server import ServerProcess, eventually, serving
from tests.support.tiny_model import write_tiny_model

QUICK = {"base_seconds": 0.001, "row_seconds": 0.0}
SIZE = 64
URL = "/v1/embeddings"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    write_tiny_model(directory / "chat", config={"simulated": QUICK})
    write_tiny_model(directory / "embed", max_model_len=600, config={"simulated": QUICK, "matryoshka_dimensions": [16]})
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, directory: Path) -> Iterator[ServerProcess]:
    arguments = (
        "--executor", "simulated", "--model", str(directory / "chat"), "--embedding-model",
        f"embed={directory / 'embed'}", "--check-integrity", "--strict",
        "--data-dir", str(directory / "data"),
    )  # fmt: skip
    with serving(tmp_path_factory.mktemp("server") / "log", *arguments) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def text_model(directory: Path) -> TextModel:
    return load_text_model(directory / "embed")


def embed(client: httpx.Client, given: Any, **fields: Any) -> httpx.Response:
    return client.post(URL, json={"model": "embed", "input": given, **fields})


def vectors(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    data = response.json()["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    assert {item["object"] for item in data} == {"embedding"}
    return [item["embedding"] for item in data]


def test_a_text_has_a_vector_of_numbers(client: httpx.Client, text_model: TextModel) -> None:
    answer = embed(client, "The bus", user="somebody")
    (vector,) = vectors(answer)
    assert len(vector) == SIZE
    assert sum(number * number for number in vector) == pytest.approx(1)
    num_tokens = len(text_model.encode("The bus"))
    assert answer.json()["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert answer.json()["model"] == "embed"
    assert answer.json()["object"] == "list"


def test_base64_is_the_same_in_little_endian_float32(client: httpx.Client) -> None:
    (numbers,) = vectors(embed(client, "The bus", encoding_format="float"))
    (encoded,) = vectors(embed(client, "The bus", encoding_format="base64"))
    assert list(struct.unpack(f"<{SIZE}f", base64.b64decode(encoded))) == numbers


def test_texts_keep_their_order_however_many(client: httpx.Client) -> None:
    texts = [f"passenger {number} " + "x" * (number % 50) for number in range(300)]
    together = vectors(embed(client, texts))
    assert len({tuple(vector) for vector in together}) == 300
    for number in (0, 63, 64, 299):
        assert vectors(embed(client, texts[number])) == [together[number]]


def test_token_ids_are_texts_too(client: httpx.Client, text_model: TextModel) -> None:
    one, other = (text_model.encode(text) for text in ("The bus", "Paris"))
    expected = vectors(embed(client, ["The bus", "Paris"]))
    assert vectors(embed(client, [one, other])) == expected
    assert vectors(embed(client, one)) == expected[:1]


def test_vectors_are_cut_where_the_model_allows_it(client: httpx.Client) -> None:
    (whole,), (cut,) = vectors(embed(client, "x", dimensions=SIZE)), vectors(embed(client, "x", dimensions=16))
    assert len(whole) == SIZE
    length = sum(number * number for number in whole[:16]) ** 0.5
    assert cut == pytest.approx([number / length for number in whole[:16]], abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": ""}, "input", "invalid_value"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": ["x", ""]}, "input", "invalid_value"),
        ({"input": [[]]}, "input", "invalid_value"),
        ({"input": ["x", 1]}, "input", "invalid_value"),
        ({"input": [1_000_000]}, "input", "invalid_value"),
        ({"input": [-1]}, "input", "invalid_value"),
        ({"input": ["x"] * 2049}, "input", "invalid_value"),
        ({"input": [[5] * 601]}, "input", "context_length_exceeded"),
        ({"input": ["y" * 4000]}, "input", "context_length_exceeded"),
        ({"input": "x", "dimensions": 17}, "dimensions", "invalid_value"),
        ({"input": "x", "dimensions": 0}, "dimensions", "invalid_value"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format", "invalid_value"),
        ({"input": "x", "user": 5}, "user", "invalid_value"),
        ({"input": "x", "model": "chat"}, "model", "model_not_supported"),
    ],
)
def test_what_can_not_be_embedded_is_a_400(client: httpx.Client, fields: dict[str, Any], param: str, code: str) -> None:
    answer = client.post(URL, json={"model": "embed", **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].partition("[")[0] == param
    assert answer.json()["error"]["code"] in {code, "invalid_type"}
    assert vectors(embed(client, [[5] * 600]))


def test_each_kind_of_model_is_for_its_own_endpoints(client: httpx.Client) -> None:
    chat = client.post("/v1/completions", json={"model": "embed", "prompt": "x"})
    assert chat.status_code == 400
    assert chat.json()["error"]["code"] == "model_not_supported"
    assert "'chat'" in chat.json()["error"]["message"]
    assert embed(client, "x", model="nobody").status_code == 404
    assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["chat", "embed"]
    assert client.post("/tokenize", json={"model": "embed", "prompt": "x"}).json()["max_model_len"] == 600


def test_without_an_embedding_model_the_message_says_how_to_add_one(tmp_path: Path, directory: Path) -> None:
    arguments = ("--executor", "simulated", "--model", str(directory / "chat"))
    with serving(tmp_path / "log", *arguments) as server, server.client() as client:
        answer = embed(client, "x", model="chat")
        assert answer.status_code == 400
        assert "--embedding-model" in answer.json()["error"]["message"]


def test_the_sdk_reads_what_it_asks_for(server: ServerProcess, client: httpx.Client) -> None:
    sdk = openai_client(server.url)
    found = sdk.embeddings.create(model="embed", input=["The bus", "Paris"])
    assert [item.embedding for item in found.data] == [
        pytest.approx(vector) for vector in vectors(embed(client, ["The bus", "Paris"]))
    ]
    sdk.close()


def test_many_clients_at_once_and_some_who_leave(server: ServerProcess, client: httpx.Client) -> None:
    with ThreadPoolExecutor(12) as pool:
        leaving = [pool.submit(leave_early, server) for _ in range(6)]
        staying = [pool.submit(lambda n=number: vectors(embed_alone(server, n))) for number in range(6)]
        assert all(len(each.result()) == 100 for each in staying)
        for each in leaving:
            each.result()
    assert len(vectors(embed(client, "x"))) == 1
    assert eventually(lambda: set(num_requests(client)) == {0.0})


def num_requests(client: httpx.Client) -> list[float]:
    """How many run and how many wait."""
    lines = client.get("/metrics").text.splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:num_requests_")]


def embed_alone(server: ServerProcess, number: int) -> httpx.Response:
    with server.client() as client:
        return embed(client, [f"{number} {index}" for index in range(100)])


def leave_early(server: ServerProcess) -> None:
    with server.client() as client, pytest.raises(httpx.TimeoutException):
        client.post(
            "/v1/embeddings",
            json={"model": "embed", "input": ["x " * 200] * 2000},
            timeout=httpx.Timeout(30, read=0.05),
        )


def test_telemetry_counts_embeddings_by_model_and_error(client: httpx.Client) -> None:
    def count() -> Counter[str]:
        """Requests by their error."""
        counts: Counter[str] = Counter()
        for sample in client.get("/metrics").text.splitlines():
            if sample.startswith("gen_ai_server_request_duration_seconds_count{"):
                if 'operation_name="embeddings"' in sample and 'request_model="embed"' in sample:
                    error = re.search(r'error_type="(\w*)"', sample)
                    counts[error[1] if error else ""] += int(float(sample.rpartition(" ")[2]))
        return counts

    before = count()
    embed(client, ["x", "y"])
    embed(client, [[5] * 601])
    more = count() - before
    del more["client_disconnected"]  # of those who left the test before
    assert more == {"": 1, "context_length_exceeded": 1}


def test_lines_of_a_batch_are_embedded(server: ServerProcess, client: httpx.Client) -> None:
    sdk = openai_client(server.url)
    lines = [
        line(1, URL, model="embed", input=["a bus", "a train"], dimensions=16),
        line(2, URL, model="embed", input=""),
        line(3, URL, model="embed", input="a bus", encoding_format="base64"),
    ]
    batch = ended(sdk, create(sdk, jsonl(*lines), URL))
    first, third = (result["response"]["body"] for result in read(sdk, batch.output_file_id))
    expected = embed(client, ["a bus", "a train"], dimensions=16).json()
    assert first == expected
    assert (
        third["data"][0]["embedding"] == embed(client, "a bus", encoding_format="base64").json()["data"][0]["embedding"]
    )
    (error,) = read(sdk, batch.error_file_id)
    assert (error["response"]["status_code"], error["response"]["body"]["error"]["param"]) == (400, "input")
    assert batch.usage is not None
    assert batch.usage.input_tokens == sum(body["usage"]["prompt_tokens"] for body in (first, third))
