"""Batches of a server that is killed: whatever dies when, each line has one result in the end."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from openai.types import Batch

from tests.support.plain_http import openai_client
from tests.support.server import PATIENCE_SECONDS, ServerProcess, eventually
from tests.support.tiny_model import write_tiny_model

NUM_LINES = 500
MODEL = {"base_seconds": 0.002, "row_seconds": 0.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny", config={"simulated": MODEL})


@contextmanager
def started(tmp_path: Path, model: Path, *arguments: str) -> Iterator[ServerProcess]:
    """A server with the same data as the last one here; what is left of it is killed in the end."""
    data = ("--data-dir", str(tmp_path / "data"))
    server = ServerProcess(tmp_path / "log", "--executor", "simulated", "--model", str(model), *data, *arguments)
    try:
        server.wait_ready()
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def sdk(server: ServerProcess) -> openai.OpenAI:
    return openai_client(server.url)


def create(client: openai.OpenAI, max_tokens: int = 8) -> Batch:
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": "tiny", "prompt": f"Number {number}", "max_tokens": max_tokens, "ignore_eos": True},
        }
        for number in range(NUM_LINES)
    ]
    file = client.files.create(file=("in.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")


def num_done(client: openai.OpenAI, batch: Batch) -> int:
    counts = client.batches.retrieve(batch.id).request_counts
    return counts.completed if counts else 0


def check_results(client: openai.OpenAI, batch: Batch) -> None:
    assert eventually(lambda: client.batches.retrieve(batch.id).status == "completed")
    batch = client.batches.retrieve(batch.id)
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
    assert batch.usage is not None
    assert batch.usage.output_tokens == 8 * NUM_LINES
    results = [json.loads(line) for line in client.files.content(str(batch.output_file_id)).text.splitlines()]
    assert [result["custom_id"] for result in results] == [f"line-{number}" for number in range(NUM_LINES)]
    assert {result["response"]["status_code"] for result in results} == {200}
    assert {file.id for file in client.files.list()} == {batch.input_file_id, batch.output_file_id}


def test_a_gateway_killed_at_any_point_loses_and_repeats_nothing(tmp_path: Path, model: Path) -> None:
    """Killed once at a moment of each kind: while lines are checked, while they run, while the output is written."""
    moments = random.Random(20)
    with started(tmp_path, model) as server:
        batch = create(sdk(server))
        time.sleep(moments.uniform(0, 0.05))
    for _ in range(3):
        with started(tmp_path, model) as server:
            client = sdk(server)
            done = num_done(client, batch)
            assert eventually(lambda: num_done(client, batch) > min(done + 20, NUM_LINES - 1))  # noqa: B023
            time.sleep(moments.uniform(0, 0.1))
    with started(tmp_path, model) as server:
        check_results(sdk(server), batch)
        assert sorted((tmp_path / "data" / "incoming").iterdir()) == []
        assert len(list((tmp_path / "data" / "files").iterdir())) == 2


def test_an_engine_killed_while_lines_run_loses_and_repeats_nothing(tmp_path: Path, model: Path) -> None:
    with started(tmp_path, model) as server:
        client = sdk(server)
        batch = create(client)
        for share in (0.2, 0.5):
            assert eventually(lambda: num_done(client, batch) > share * NUM_LINES)  # noqa: B023
            engine = server.engine()
            engine.kill()
            engine.wait(PATIENCE_SECONDS)
        check_results(client, batch)


def test_a_drain_leaves_the_rest_to_the_next_start(tmp_path: Path, model: Path) -> None:
    with started(tmp_path, model) as server:
        client = sdk(server)
        batch = create(client)
        assert eventually(lambda: num_done(client, batch) > 0)
        assert server.stop() == 0
    assert "held up" not in server.log
    with started(tmp_path, model) as server:
        client = sdk(server)
        assert num_done(client, batch) > 0
        check_results(client, batch)
