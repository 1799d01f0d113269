"""What tests of batches share: lines, files of them, and the SDK that brings them."""

from __future__ import annotations

import json
from typing import Any

import openai
from openai.types import Batch

from tests.gateway.fake_engine import MODEL
from tests.gateway.raw import eventually
from tests.gateway.running import COMPLETIONS, RunningGateway
from tests.support.plain_http import openai_client

FINAL = ("completed", "failed", "cancelled", "expired")


def sdk(server: RunningGateway, key: str = "one") -> openai.OpenAI:
    return openai_client(server.url, key)


def line(number: int, url: str = COMPLETIONS, **body: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"prompt": f"Number {number}"} if url == COMPLETIONS else {}
    return {
        "custom_id": f"line-{number}",
        "method": "POST",
        "url": url,
        "body": {"model": MODEL, **content, **body},
    }


def jsonl(*lines: dict[str, Any]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in lines).encode()


def create(client: openai.OpenAI, content: bytes, endpoint: str = COMPLETIONS, **options: Any) -> Batch:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,  # type: ignore[arg-type]
        completion_window="24h",
        **options,
    )


def ended(client: openai.OpenAI, batch: Batch) -> Batch:
    assert eventually(lambda: client.batches.retrieve(batch.id).status in FINAL)
    return client.batches.retrieve(batch.id)


def num_completed(client: openai.OpenAI, batch: Batch) -> int:
    counts = client.batches.retrieve(batch.id).request_counts
    return counts.completed if counts is not None else 0


def read(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    return [json.loads(text) for text in client.files.content(file_id).text.splitlines()] if file_id else []
