"""Bad input is refused at the edge while the engine stays well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.blackbox.client import CHAT, Client

BAD_VALUES: list[tuple[str, list[Any]]] = [
    ("temperature", [-0.1, 2.1, "0.5", True]),
    ("n", [0, 10**9]),
    ("max_tokens", ["5", 10**12]),
    ("top_logprobs", [10**6]),
    ("seed", [2**64]),
    ("stop", [["a", "b", "c", "d", "e"]]),
    ("stop_token_ids", [[999999], [None]]),
    ("logit_bias", [{"abc": 1}]),
    ("messages", [[]]),
]


@pytest.mark.parametrize(("param", "values"), BAD_VALUES)
def test_a_bad_value_is_a_400_that_names_it(client: Client, param: str, values: list[Any]) -> None:
    for value in values:
        response = client.post(CHAT, client.chat_body(**{"logprobs": True, param: value}))
        assert response.status_code == 400
        assert response.json()["error"]["param"].split("[")[0] == param
    client.canary()


@pytest.mark.parametrize("literal", ['"temperature": NaN', '"temperature": 1e999', '"temperature": 0,'])
def test_what_is_not_json_is_refused(client: Client, literal: str) -> None:
    text = json.dumps(client.chat_body()).replace('"temperature": 0', literal)
    response = client.http.post(CHAT, content=text.encode(), headers={"content-type": "application/json"})
    assert response.status_code == 400
    client.canary()


@pytest.mark.parametrize("stream", [True, False])
def test_too_long_a_prompt_is_refused_before_any_event(client: Client, stream: bool) -> None:
    messages = [{"role": "user", "content": "word " * 40_000}]
    response = client.post(CHAT, client.chat_body(messages=messages, stream=stream))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert "maximum context length" in response.json()["error"]["message"]
    client.canary()


def test_made_up_models_add_no_series(client: Client) -> None:
    def series() -> int:
        return sum(not line.startswith("#") for line in client.http.get("/metrics").text.splitlines())

    client.post(CHAT, client.chat_body(model="made-up"))
    before = series()
    for number in range(20):
        assert client.post(CHAT, client.chat_body(model=f"made-up-{number}")).status_code == 404
    assert series() == before


def test_work_of_a_client_that_left_is_dropped(client: Client) -> None:
    from tests.support.server import eventually

    client.canary()
    body = client.chat_body(max_tokens=2000, ignore_eos=True, stream=True)
    with client.http.stream("POST", CHAT, json=body) as response:
        assert next(response.iter_raw())
    assert eventually(lambda: client.metric("vllm:num_requests_running") == 0)
    assert eventually(lambda: client.metric("vllm:kv_cache_usage_perc") == 0)
    client.canary()
