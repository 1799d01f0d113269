"""`/tokenize` and `/detokenize`: the tokens that the model would see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core_engine.text import load_text_model
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.test_http import error_of
from tests.gateway.test_reasoning import TEMPLATE
from tests.gateway.tool_examples import TOOLS
from tests.support.tiny_model import write_tiny_model

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A model whose template asks whether to think, and how hard."""
    with running_gateway(
        load_text_model(write_tiny_model(tmp_path_factory.mktemp("thinker") / "tiny", chat_template=TEMPLATE))
    ) as running:
        yield running


def test_tokens_go_there_and_back(server: RunningGateway) -> None:
    text = "Grüße, <|im_end|>"
    answer = server.post("/tokenize", prompt=text).json()
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 2048
    assert answer["tokens"][-1] == server.eos
    assert server.post("/detokenize", tokens=answer["tokens"]).json() == {"prompt": text}


def test_messages_are_tokenised_as_the_model_sees_them(server: RunningGateway) -> None:
    answer = server.post("/tokenize", messages=HELLO).json()
    server.chat(messages=HELLO)
    assert answer["tokens"] == server.engine.submitted[0].prompt_token_ids


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "none"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "time"}}},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"reasoning_effort": "low"},
        {"continue_final_message": True},
    ],
)
def test_tokens_are_those_that_the_chat_would_send(thinker: RunningGateway, fields: dict[str, Any]) -> None:
    answer = thinker.post("/tokenize", messages=HELLO, **fields)
    assert answer.status_code == 200, answer.text
    assert thinker.chat(messages=HELLO, **fields).status_code == 200
    assert answer.json()["tokens"] == thinker.engine.submitted[-1].prompt_token_ids
    plain = thinker.post("/tokenize", messages=HELLO).json()["tokens"]
    assert (answer.json()["tokens"] == plain) == (fields.get("tool_choice") == "none")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"messages": HELLO, "tools": [{"type": "x"}]}, "tools[0].type"),
        ("/tokenize", {"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        ("/tokenize", {"messages": HELLO, "chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs"),
        ("/tokenize", {"prompt": "x", "messages": HELLO}, "messages"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": HELLO, "chat_template": "x"}, "chat_template"),
        ("/detokenize", {"tokens": [10**6]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
def test_bad_token_requests_are_refused(server: RunningGateway, path: str, body: dict[str, Any], param: str) -> None:
    assert error_of(server.post(path, **body), 400)["param"] == param


def test_token_requests_know_the_model(server: RunningGateway) -> None:
    for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [5]})):
        assert error_of(server.http.post(path, json={**body, "model": "other"}), 404)["code"] == "model_not_found"
        assert server.http.post(path, json=body).status_code == 200
