"""Clients that hang up at any moment leave nothing behind: not a sequence, a block or a socket, nor a trace in others.

The model is simulated; its executor verifies every batch against what memory must hold.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.blackbox.client import Client
from tests.gateway.raw import json_post
from tests.support.server import ServerProcess, eventually, serving
from tests.support.tiny_model import write_tiny_model

AT_ONCE = 48
MODEL = {"base_seconds": 0.002, "row_seconds": 0.00005}
# Small enough that most of them wait for a while, and that memory runs short.
LIMITS = ("--sequence-limit", "12", "--token-limit", "64", "--max-model-len", "1024", "--kv-memory", "2M")
GAUGES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "jitney_waiting_tokens",
    "jitney_kv_waste_tokens",
)
# Of a Python process that serves; a connection that is kept, with its task and its request, would be 20 KB and more.
NOISE_BYTES = 6 * 1024 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    model = write_tiny_model(tmp_path / "tiny", config={"simulated": MODEL})
    with serving(tmp_path / "log", "--executor", "simulated", "--model", str(model), *LIMITS) as running:
        yield running


class Vanishing:
    """Draws clients, each with a request of its own and a moment at which it hangs up."""

    def __init__(self, port: int, seed: int) -> None:
        self.draw = random.Random(seed)
        self._port = port
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def clients(self, count: int) -> None:
        await asyncio.gather(*(self._client() for _ in range(count)))

    def _request(self) -> bytes:
        draw = self.draw
        text = "".join(draw.choices("abcdefgh ", k=draw.choice((5, 50, 500))))
        fields: dict[str, Any] = {
            "max_tokens": draw.choice((1, 20, 200)),
            "ignore_eos": True,
            "n": draw.choice((1, 4)),
            "stream": draw.random() < 0.5,
        }
        if draw.random() < 0.5:
            return json_post("/v1/completions", prompt=text, **fields)
        return json_post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **fields)

    async def _client(self) -> None:
        async with self._turn:
            draw = self.draw
            request = self._request()
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            if draw.random() < 0.1:
                request = request[: draw.randrange(len(request))]
            writer.write(request)
            await writer.drain()
            moment = draw.choice(("at once", "a while", "first bytes", "later bytes"))
            if moment == "a while":
                await asyncio.sleep(draw.uniform(0, 0.3))
            elif moment != "at once":
                await self._read(reader, 1 if moment == "first bytes" else draw.randrange(1, 4000))
            if draw.random() < 0.5:  # a reset instead of an orderly end
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, count: int) -> None:
        """Wait for that many bytes; not for long, since half a request gets no answer."""
        try:
            async with asyncio.timeout(0.5):
                await reader.readexactly(count)
        except (TimeoutError, asyncio.IncompleteReadError):
            pass


async def storm(server: ServerProcess, client: Client, count: int, expected: str) -> None:
    """That many clients vanish, while a neighbour asks the same over and over."""
    vanishing = asyncio.ensure_future(Vanishing(server.port, seed=count).clients(count))

    async def most_waiting() -> float:
        most = 0.0
        with server.client() as http:
            while not vanishing.done():
                metric = Client(http, server.model).metric
                most = max(most, await asyncio.to_thread(metric, "vllm:num_requests_waiting"))
        return most

    waiting = asyncio.ensure_future(most_waiting())
    while not vanishing.done():
        assert await asyncio.to_thread(neighbour, client) == expected
    await vanishing
    assert await waiting > 0  # else none of them was cut in the queue


def neighbour(client: Client) -> str:
    return client.stream("/v1/completions", client.completion_body(max_tokens=40, ignore_eos=True)).text()


def resident_bytes(server: ServerProcess) -> int:
    """Of gateway and engine."""
    gateway = psutil.Process(server.process.pid)
    return sum(process.memory_info().rss for process in (gateway, *gateway.children()))


def vanish(server: ServerProcess, count: int) -> None:
    with server.client() as http:
        client = Client(http, server.model)
        expected = neighbour(client)
        gateway = psutil.Process(server.process.pid)
        num_files = gateway.num_fds()
        asyncio.run(storm(server, client, count // 2, expected))
        half_bytes = resident_bytes(server)
        asyncio.run(storm(server, client, count // 2, expected))
        assert eventually(lambda: not any(map(client.metric, GAUGES))), [(name, client.metric(name)) for name in GAUGES]
        assert eventually(lambda: gateway.num_fds() <= num_files)
        growth = resident_bytes(server) - half_bytes
        assert growth < NOISE_BYTES, growth
        assert neighbour(client) == expected
    assert "Traceback" not in server.log
    assert "ERROR" not in server.log


def test_two_hundred_clients_vanish(server: ServerProcess) -> None:
    vanish(server, 200)


@pytest.mark.full
def test_a_thousand_clients_vanish(server: ServerProcess) -> None:
    vanish(server, 1000)
