"""The gateway by itself: how many token events a second it writes, and what it adds to the pace of the engine.

The engine is simulated and decides as always, but computes nothing; so what is measured is HTTP, text and events.
Engine and clients are processes of their own, and how much of the processor they took is told beside: where all
together took all there is, it is the machine that was measured.
"""

from __future__ import annotations

import asyncio
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
from gateway.bench.reading import Reading, read_streams
from gateway.bench.served import Served, served

_PROMPT_TOKENS, _KV_BYTES_PER_TOKEN = 8, 46_080


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
    period_seconds = 0.0 if tokens_per_second is None else clients / tokens_per_second
    with tempfile.TemporaryDirectory() as copied:
        _simulated(directory, Path(copied), period_seconds)
        options = ["--executor", "simulated", "--model", copied, "--sequence-limit", str(clients)]
        options += ["--token-limit", str(max(512, _PROMPT_TOKENS * clients))]
        options += ["--kv-memory", str(clients * (tokens + 64) * _KV_BYTES_PER_TOKEN)]
        async with served(options) as server:
            name = (await server.client.get("/v1/models")).raise_for_status().json()["data"][0]["id"]
            await _read(server, name, clients, 16)
            progress(f"{clients} clients, {tokens} tokens each")
            gateway = psutil.Process(server.pid)
            processes = {"gateway": gateway, "engine": gateway.children()[0]}
            before = {role: _processor_seconds(process) for role, process in processes.items()}
            began = time.perf_counter()
            reading = await _read(server, name, clients, tokens)
            seconds = time.perf_counter() - began
            used = {role: _processor_seconds(process) - before[role] for role, process in processes.items()}
    used["clients"] = reading.processor_seconds
    events = sum(map(len, reading.arrivals))
    gaps = [later - earlier for arrivals in reading.arrivals for earlier, later in pairwise(arrivals)]
    pace = percentile(gaps, 50) if tokens_per_second is None else period_seconds
    return {
        "workload": "gateway",
        "clients": clients,
        "tokens": clients * tokens,
        "events": events,
        "tokens_per_event": clients * tokens / events,
        "events_per_second": events / seconds,
        "events_per_processor_second": events / used["gateway"],
        "cores": {role: each / seconds for role, each in used.items()},
        "gap_seconds": percentiles(gaps),
        "added_seconds_p99": percentile(gaps, 99) - pace,
    }


def _directory(model: str) -> Path:
    """Where the model's files are; one without weights will do."""
    given = Path(model)
    return given if given.is_dir() else prepare_model(EngineConfig(model=model))


def _simulated(directory: Path, copied: Path, period_seconds: float) -> None:
    """The model's files but its weights, described as one whose iterations end at that pace."""
    for file in directory.iterdir():
        if file.suffix in (".json", ".jinja"):
            (copied / file.name).symlink_to(file)
    config = copied / "config.json"
    description = json.loads(config.read_text())
    config.unlink()
    times = ("base_seconds", "row_seconds", "attention_pair_seconds", "kv_token_seconds", "empty_seconds")
    simulated = dict.fromkeys(times, 0) | {"period_seconds": period_seconds, "verify": False}
    config.write_text(json.dumps(description | {"simulated": simulated}))


async def _read(server: Served, model: str, clients: int, tokens: int) -> Reading:
    """What that many clients get of a streamed completion each."""
    address = urlsplit(server.base_url)
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
    request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    assert address.hostname is not None
    assert address.port is not None
    return await asyncio.to_thread(read_streams, (address.hostname, address.port), [request] * clients)


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
