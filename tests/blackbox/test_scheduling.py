"""What scheduling per iteration means to clients: order and counts, seen over HTTP."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.client import COMPLETIONS, Client, content, together
from tests.gateway.events import read_events
from tests.support.server import ServerProcess, eventually, serving
from tests.support.tiny_model import write_tiny_model

NUM_CLIENTS = 64
NUM_LONG = 16
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def mixed_bodies(client: Client) -> list[dict[str, Any]]:
    """Greedy requests with prompts and answers of very different lengths."""
    draw = random.Random(0)
    return [
        client.completion_body(
            prompt=[draw.randrange(5, 400) for _ in range(draw.choice((1, 7, 40, 300)))],
            max_tokens=draw.choice((1, 5, 20, 60)),
            ignore_eos=True,
        )
        for _ in range(NUM_CLIENTS)
    ]


def test_concurrent_streams_get_the_texts_that_they_get_alone(client: Client, server: ServerProcess) -> None:
    bodies = mixed_bodies(client)
    alone = [content(client.ok(COMPLETIONS, body)) for body in bodies]

    def stream(body: dict[str, Any]) -> str:
        with server.client() as http:
            events = Client(http, server.model).stream(COMPLETIONS, body)
        assert events.done
        assert events.finish_reason() == "length"
        return events.text()

    texts = together([partial(stream, body) for body in bodies])
    assert texts == alone
    assert eventually(lambda: client.metric("vllm:num_requests_running") == 0)
    assert eventually(lambda: client.metric("vllm:kv_cache_usage_perc") == 0)


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a real model, so that an iteration takes as long everywhere."""
    costs = {"base_seconds": 0.02, "row_seconds": 0.0}
    return write_tiny_model(tmp_path_factory.mktemp("slow") / "tiny", config={"simulated": costs})


class Reader(threading.Thread):
    """A client that notes in a common record when its first token comes and when its stream ends."""

    def __init__(self, server: ServerProcess, name: str, max_tokens: int, record: list[str]) -> None:
        super().__init__(name=name)
        self._server = server
        self._max_tokens = max_tokens
        self._record = record
        self.began = threading.Event()

    def run(self) -> None:
        body = {"model": self._server.model, "prompt": self.name, "max_tokens": self._max_tokens, "stream": True}
        with self._server.client() as http, http.stream("POST", COMPLETIONS, json=body) as response:
            received = b""
            for data in response.iter_raw():
                received += data
                if not self.began.is_set() and b'"text":' in received:
                    self._record.append(f"first token of {self.name}")
                    self.began.set()
        assert read_events(received).done
        self._record.append(f"end of {self.name}")


def order_of_events(server: ServerProcess) -> list[str]:
    """What is seen where a short request arrives while long ones decode."""
    record: list[str] = []
    long = [Reader(server, f"long {number}", 100, record) for number in range(NUM_LONG)]
    for reader in long:
        reader.start()
    # Results may be held back, so the engine is asked whether they are there, not their readers.
    with server.client() as http:
        client = Client(http, server.model)
        assert eventually(lambda: sum(map(client.metric, GAUGES)) == NUM_LONG)
        assert client.metric(GAUGES[0]) > 0
    late = Reader(server, "late", 2, record)
    late.start()
    for reader in [*long, late]:
        reader.join()
    assert len(record) == 2 * (NUM_LONG + 1)
    return record


@pytest.fixture
def simulated(tmp_path: Path, slow_model: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with serving(tmp_path / "log", "--executor", "simulated", "--model", str(slow_model), *request.param) as server:
        yield server


@pytest.mark.parametrize("simulated", [()], indirect=True)
def test_a_late_request_boards_while_long_ones_ride(simulated: ServerProcess) -> None:
    record = order_of_events(simulated)
    ends = [record.index(f"end of long {number}") for number in range(NUM_LONG)]
    assert record.index("first token of late") < min(ends)
    assert record.index("end of late") < min(ends)


@pytest.mark.parametrize("simulated", [("--policy", "static_batch")], indirect=True)
def test_with_a_static_batch_it_waits_for_a_batch_to_end(simulated: ServerProcess) -> None:
    record = order_of_events(simulated)
    ends = [record.index(f"end of long {number}") for number in range(NUM_LONG)]
    assert record.index("first token of late") > min(ends)
