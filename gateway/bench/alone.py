"""The gateway by itself: how many token events a second it writes, and what it adds to the pace of the engine.

The engine is simulated and decides as always, but computes nothing; so what is measured is HTTP, text and events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from core_engine import EngineConfig, prepare_model
from gateway.bench.figures import percentile, percentiles
from gateway.bench.served import Served, served

_EVENT = b"data: {"
_PROMPT_TOKENS, _KV_BYTES_PER_TOKEN = 8, 23_040


async def alone(
    *,
    clients: int,
    tokens: int,
    tokens_per_second: float | None,
    model: str,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """`clients` streams of `tokens` each; `tokens_per_second` is the engine's pace over all of them, None its best."""
    directory = await asyncio.to_thread(_directory, model)
    iteration_seconds = 0.0 if tokens_per_second is None else clients / tokens_per_second
    with tempfile.TemporaryDirectory() as copied:
        _simulated(directory, Path(copied), iteration_seconds)
        options = ["--executor", "simulated", "--model", copied, "--sequence-limit", str(clients)]
        options += ["--token-limit", str(max(512, _PROMPT_TOKENS * clients))]
        options += ["--kv-memory", str(clients * (tokens + 64) * _KV_BYTES_PER_TOKEN)]
        async with served(options) as server:
            name = (await server.client.get("/v1/models")).raise_for_status().json()["data"][0]["id"]
            await asyncio.gather(*(_stream(server, name, 16) for _ in range(clients)))
            progress(f"{clients} clients, {tokens} tokens each")
            process = psutil.Process(server.pid)
            before, began = _processor_seconds(process), time.perf_counter()
            streams = await asyncio.gather(*(_stream(server, name, tokens) for _ in range(clients)))
            seconds, used = time.perf_counter() - began, _processor_seconds(process) - before
    events = sum(map(len, streams))
    gaps = [later - earlier for arrivals in streams for earlier, later in pairwise(arrivals)]
    pace = percentile(gaps, 50) if tokens_per_second is None else iteration_seconds
    return {
        "workload": "gateway",
        "clients": clients,
        "tokens": clients * tokens,
        "events": events,
        "events_per_second": events / seconds,
        "events_per_processor_second": events / used,
        "gap_seconds": percentiles(gaps),
        "added_seconds_p99": percentile(gaps, 99) - pace,
    }


def _directory(model: str) -> Path:
    """Where the model's files are; one without weights will do."""
    given = Path(model)
    return given if given.is_dir() else prepare_model(EngineConfig(model=model))


def _simulated(directory: Path, copied: Path, iteration_seconds: float) -> None:
    """The model's files but its weights, described as one whose iterations take that long."""
    for file in directory.iterdir():
        if file.suffix in (".json", ".jinja"):
            (copied / file.name).symlink_to(file)
    config = copied / "config.json"
    description = json.loads(config.read_text())
    config.unlink()
    costs = {"row_seconds": 0, "attention_pair_seconds": 0, "kv_token_seconds": 0, "empty_seconds": 0}
    simulated = costs | {"base_seconds": iteration_seconds, "verify": False}
    config.write_text(json.dumps(description | {"simulated": simulated}))


async def _stream(server: Served, model: str, tokens: int) -> list[float]:
    """Arrival of each event of one streamed completion, in seconds; several that come at once have one time.

    A bare socket: a client library would take more of the processor than the gateway.
    """
    address = urlsplit(server.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
    body = json.dumps(
        {
            "model": model,
            "prompt": [100] * _PROMPT_TOKENS,
            "max_tokens": tokens,
            "temperature": 1,
            "ignore_eos": True,
            "stream": True,
        }
    )
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {address.netloc}\r\nconnection: close\r\n"
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    arrivals: list[float] = []
    rest = b""
    try:
        while piece := await reader.read(1 << 16):
            text = rest + piece
            arrivals += [time.perf_counter()] * text.count(_EVENT)
            rest = text[-len(_EVENT) + 1 :]
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return arrivals


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
