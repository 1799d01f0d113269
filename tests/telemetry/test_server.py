"""The whole way: `jitney serve` with a simulated model, a client with a trace of its own, a collector."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.tiny_model import write_tiny_model
from tests.telemetry.collector import Collector, attributes

pytestmark = pytest.mark.slow

HANG_SECONDS = 120.0
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    yield collector
    collector.stop()


@pytest.fixture
def server(tmp_path: Path, collector: Collector) -> Iterator[subprocess.Popen[str]]:
    model = write_tiny_model(tmp_path / "tiny")
    command = [sys.executable, "-c", "from gateway.cli import main; main()", "serve"]
    options = ["--executor", "simulated", "--model", str(model), "--served-model-name", "tiny", "--port", "0"]
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    process = subprocess.Popen([*command, *options], env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    yield process
    process.kill()
    process.wait()
    process.stderr.close()


def address(server: subprocess.Popen[str]) -> str:
    """Where the server listens, once it is ready."""
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r"listening on (http://\S+?),", line):
            break
    else:
        raise AssertionError("the server ended before it listened")
    deadline = time.monotonic() + HANG_SECONDS
    while httpx.get(f"{found[1]}/ready").status_code != 200:
        assert time.monotonic() < deadline, "the server never became ready"
        time.sleep(0.05)
    return found[1]


def test_a_request_is_exported_as_a_trace_and_in_metrics(server: subprocess.Popen[str], collector: Collector) -> None:
    url = address(server)
    answer = httpx.post(
        f"{url}/v1/chat/completions",
        json={"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "a secret question"}]},
        headers={"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"},
        timeout=HANG_SECONDS,
    )
    assert answer.status_code == 200, answer.text
    exposition = httpx.get(f"{url}/metrics").text
    server.send_signal(signal.SIGTERM)
    assert server.wait(HANG_SECONDS) == 0

    assert 'vllm:generation_tokens_total{model_name="tiny"} 5.0' in exposition
    assert 'vllm:num_requests_running{model_name="tiny"} 0.0' in exposition
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"chat tiny", "queue", "prefill", "decode"}
    request = spans["chat tiny"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    described = attributes(request)
    assert described["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert described["gen_ai.usage.output_tokens"] == 5
    assert described["gen_ai.response.id"] == answer.json()["id"]
    assert {span.trace_id for span in spans.values()} == {request.trace_id}
    (generated,) = collector.last_metrics()["vllm:generation_tokens"].sum.data_points
    assert generated.as_int == 5
    assert b"secret" not in b"".join(message.SerializeToString() for message in (*collector.traces, *collector.metrics))
