"""The model that `make serve` serves: fetched the first time, and able to answer a question."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.blackbox.client import CHAT, Client, content
from tests.support.server import ServerProcess, serving

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("default") / "log"
    with serving(log, "--kv-memory", "512M") as server:
        yield server


def test_it_knows_paris(default: ServerProcess) -> None:
    with default.client() as http:
        client = Client(http, default.model)
        body = client.chat_body(messages=QUESTION, max_tokens=16, logprobs=True)
        answer = client.ok(CHAT, body)
        assert "Paris" in content(answer)
        assert answer["choices"][0]["finish_reason"] == "stop"
        events = client.stream(CHAT, body)
    assert events.text() == content(answer)
    assert events.finish_reason() == "stop"
    # Token by token: every entry comes in a chunk of its own.
    counts = [len(choice["logprobs"]["content"]) for choice in events.choices() if choice["logprobs"]]
    assert sum(counts) == answer["usage"]["completion_tokens"] - 1
    assert len(counts) > 3


def test_the_sdk_gets_paris_too(default: ServerProcess) -> None:
    with openai.OpenAI(base_url=f"{default.url}/v1", api_key="none", max_retries=0) as sdk:
        answer = sdk.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            temperature=0,
            max_tokens=16,
        )
    assert "Paris" in str(answer.choices[0].message.content)
