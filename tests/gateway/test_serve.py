"""`jitney serve` from start to end, with a simulated model: real processes, sockets and signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gateway.commands.serve import configured
from gateway.server import serve
from tests.gateway.events import read_events
from tests.support.server import PATIENCE_SECONDS, ServerProcess, eventually, serving
from tests.support.tiny_model import write_tiny_model

SLOW = {"base_seconds": 0.02, "row_seconds": 0.0}


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes 20 ms for a token, so that there is time to do things to it."""
    return write_tiny_model(tmp_path_factory.mktemp("slow") / "tiny", config={"simulated": SLOW})


def start(tmp_path: Path, model: Path, *arguments: str) -> ServerProcess:
    return ServerProcess(tmp_path / "log", "--executor", "simulated", "--model", str(model), *arguments)


def body(server: ServerProcess, max_tokens: int, *, stream: bool = True) -> dict[str, Any]:
    return {"model": server.model, "prompt": "Hello", "max_tokens": max_tokens, "stream": stream, "temperature": 0}


def first_data(chunks: Iterator[bytes]) -> bytes:
    return next(chunk for chunk in chunks if chunk.startswith(b"data: "))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, slow_model: Path) -> Iterator[ServerProcess]:
    """For tests that leave it as well as they found it."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(log, "--executor", "simulated", "--model", str(slow_model)) as running:
        yield running


def test_a_server_serves(server: ServerProcess) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", json=body(server, 5, stream=False)).json()
        assert answer["usage"]["completion_tokens"] == 5
        assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
        assert "vllm:num_requests_running" in client.get("/metrics").text
    assert "Hello" not in server.log
    assert "ready: tiny" in server.log
    assert "plan_iteration: stall_free" in server.log


def test_an_engine_alone_waits_as_openmp_does(server: ServerProcess) -> None:
    assert server.engine().environ().get("GOMP_SPINCOUNT") == os.environ.get("GOMP_SPINCOUNT")


def test_options_reach_engine_and_gateway(tmp_path: Path, slow_model: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of the team\nfrom-file\n\n", encoding="utf-8")
    arguments = (
        "--executor", "simulated", "--model", str(slow_model), "--served-model-name", "my/bus", "--max-model-len", "64",
        "--api-key", "from-option", "--api-key-file", str(keys), "--policy", "orca", "--default-max-tokens", "7",
    )  # fmt: skip
    with serving(tmp_path / "log", *arguments, key="from-file") as server:
        with server.client() as client:
            (card,) = client.get("/v1/models").json()["data"]
            assert (card["id"], card["max_model_len"]) == ("my/bus", 64)
            assert client.get("/v1/models/my/bus").status_code == 200
            chat = {"model": "my/bus", "messages": [{"role": "user", "content": "x"}]}
            assert client.post("/v1/chat/completions", json=chat).json()["usage"]["completion_tokens"] == 7
            for key, status in (("from-option", 200), ("wrong", 401)):
                assert client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == status
        assert "plan_iteration: orca" in server.log
        assert "from-option" not in server.log


def test_a_drain_lets_running_requests_finish(tmp_path: Path, slow_model: Path) -> None:
    with serving(tmp_path / "log", "--executor", "simulated", "--model", str(slow_model)) as server:
        with server.client() as client, client.stream("POST", "/v1/completions", json=body(server, 60)) as response:
            chunks = response.iter_raw()
            received = first_data(chunks)
            server.process.send_signal(signal.SIGTERM)
            with server.client() as other:
                assert eventually(lambda: other.get("/ready").status_code == 503)
                assert other.post("/v1/completions", json=body(server, 1)).json()["error"]["code"] == "draining"
                assert other.get("/health").json()["status"] == "draining"
            events = read_events(received + b"".join(chunks))
        assert events.done
        assert events.finish_reason() == "length"
        assert server.stop() == 0


@pytest.mark.parametrize("how", ["deadline", "second signal"])
def test_a_drain_has_an_end(tmp_path: Path, slow_model: Path, how: str) -> None:
    arguments = ("--drain-seconds", "0.1" if how == "deadline" else "600")
    with serving(tmp_path / "log", "--executor", "simulated", "--model", str(slow_model), *arguments) as server:
        engine = server.engine()
        with server.client() as client, client.stream("POST", "/v1/completions", json=body(server, 2000)) as response:
            chunks = response.iter_raw()
            received = first_data(chunks)
            server.process.send_signal(signal.SIGTERM)
            if how == "second signal":
                with server.client() as other:
                    assert eventually(lambda: other.get("/ready").status_code == 503)
                server.process.send_signal(signal.SIGINT)
            events = read_events(received + b"".join(chunks))
        assert not events.done
        assert events.chunks[-1]["error"]["code"] == "engine_died"
        assert server.stop() == 0
        assert not psutil.pid_exists(engine.pid)


def test_killing_the_engine_ends_every_stream_with_an_error(server: ServerProcess) -> None:
    clients = [server.client() for _ in range(20)]
    contexts = [client.stream("POST", "/v1/completions", json=body(server, 2000)) for client in clients]
    iterators = [context.__enter__().iter_raw() for context in contexts]
    received = [first_data(iterator) for iterator in iterators]
    engine = server.engine()
    engine.kill()
    for beginning, iterator in zip(received, iterators, strict=True):
        events = read_events(beginning + b"".join(iterator))
        assert not events.done
        assert events.chunks[-1]["error"]["code"] == "engine_died"
    for context, client in zip(contexts, clients, strict=True):
        context.__exit__(None, None, None)
        client.close()
    with server.client() as client:
        assert client.get("/health").status_code == 200
        assert eventually(lambda: client.get("/ready").status_code == 200)
        assert client.post("/v1/completions", json=body(server, 2, stream=False)).status_code == 200
    assert server.engine().pid != engine.pid


def test_killing_the_gateway_leaves_no_engine(tmp_path: Path, slow_model: Path) -> None:
    server = start(tmp_path, slow_model)
    server.wait_ready()
    engine = server.engine()
    server.process.kill()
    server.process.wait()
    assert eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)


def test_probes_and_signals_are_answered_while_the_model_loads(tmp_path: Path) -> None:
    # A pipe that nobody writes to holds the engine up while it reads its model.
    model = write_tiny_model(tmp_path / "model")
    (model / "config.json").unlink()
    os.mkfifo(model / "config.json")
    server = start(tmp_path, model)
    try:
        server.wait_listening()
        with server.client() as client:
            assert client.get("/health").json()["status"] == "starting"
            ready = client.get("/ready")
            assert ready.status_code == 503
            assert ready.json()["error"]["code"] == "engine_starting"
            assert "retry-after" in ready.headers
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("stream", [True, False])
def test_twenty_clients_leaving_free_the_engine(server: ServerProcess, stream: bool) -> None:
    content = json.dumps(body(server, 2000, stream=stream)).encode()
    request = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for connection in connections:
        connection.sendall(request)
    with server.client() as client:
        assert eventually(lambda: gauge(client, "vllm:num_requests_running") == 20)
        for connection in connections:
            connection.close()
        assert eventually(lambda: gauge(client, "vllm:num_requests_running") == 0)
        assert eventually(lambda: gauge(client, "vllm:kv_cache_usage_perc") == 0)


def gauge(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


class _Visitor(logging.Handler):
    """Connects to the port that a line of the log names, as soon as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[bool] = []
        self.has_come = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        named = re.search(r"listening on http://127.0.0.1:(\d+)", record.getMessage())
        if named:
            with socket.socket() as visitor:
                self.found.append(visitor.connect_ex(("127.0.0.1", int(named[1]))) == 0)
            self.has_come.set()


async def test_who_reads_that_it_listens_may_come_at_once(tmp_path: Path) -> None:
    options = {"executor": "simulated", "model": str(write_tiny_model(tmp_path / "tiny")), "data_dir": str(tmp_path)}
    visitor, logger = _Visitor(), logging.getLogger("jitney")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(visitor)
    try:
        running = asyncio.create_task(serve(*configured(options | {"port": 0})))
        await asyncio.wait_for(visitor.has_come.wait(), PATIENCE_SECONDS)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        logger.removeHandler(visitor)
        logger.setLevel(before)
    assert visitor.found == [True]
