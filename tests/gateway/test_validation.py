"""Wrong types and ranges are 400s that name the field, before the engine hears of anything."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.running import RunningGateway

BAD_VALUES: list[tuple[str, list[Any]]] = [
    ("temperature", [-0.1, 2.1, "0.5", True, [1]]),
    ("top_p", [-0.1, 1.1, "1"]),
    ("top_k", [-2, 1.5, True, 2**31]),
    ("min_p", [-0.1, 1.1]),
    ("n", [0, -1, 129, 10**9, "1", 1.0, True]),
    ("max_tokens", ["5", 0, -1, 2049, 10**12, 10**30, 1.5]),
    ("max_completion_tokens", ["5", 0, 2049]),
    ("min_tokens", [-1, 2049, "1"]),
    ("top_logprobs", [-1, 21, 10**6, "1"]),
    ("logprobs", [1, "true"]),
    ("seed", [2**63, 2**64, -(2**63) - 1, "1", 1.0]),
    ("stop", [["a", "b", "c", "d", "e"], "", [""], 5, [5], {"a": 1}]),
    ("stop_token_ids", [[999999], [-1], [None], ["1"], 5, [True]]),
    ("allowed_token_ids", [[], [999999], ["a"]]),
    ("bad_words", ["word", [""], [1], ["x"] * 257]),
    ("presence_penalty", [-2.1, 2.1, "0"]),
    ("frequency_penalty", [-2.1, 2.1]),
    ("repetition_penalty", [0, -1, 11, "1"]),
    ("logit_bias", [{"abc": 1}, {"-1": 1}, {"999999": 1}, {"1": 101}, {"1": "1"}, {"": 1}, [1], {"¹": 1}]),
    ("stream", ["true", 1]),
    ("stream_options", [True, "usage"]),
    ("messages", [[], "hi", [1], None, {}]),
    ("priority", ["high", 1.5, 2**31]),
    ("cache_salt", ["", 5, "x" * 257]),
    ("truncate_prompt_tokens", [0, -1, "5"]),
    ("chat_template", ["{{ 1 }}", "", 5]),
    (
        "chat_template_kwargs",
        [{"tokenize": False}, {"messages": []}, {"enable_thinking": {}}, [], {"chat_template": "x"}],
    ),
    ("response_format", ["text", {"type": "xml"}]),
    ("user", [5]),
    ("metadata", ["x"]),
    ("store", ["yes"]),
    ("parallel_tool_calls", ["yes"]),
    ("tools", [{}, "x", [5]]),
    ("return_token_ids", ["yes"]),
    ("ignore_eos", [1]),
    ("model", ["", 5, None]),
]


@pytest.mark.parametrize(("param", "values"), BAD_VALUES)
def test_a_bad_value_is_a_400_that_names_it(server: RunningGateway, param: str, values: list[Any]) -> None:
    for value in values:
        response = server.chat(**{"logprobs": True, param: value})
        assert response.status_code == 400, (value, response.text)
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["param"].split(".")[0].split("[")[0] == param, error
        assert param in error["message"], error
    assert not server.engine.submitted


def test_a_bound_of_tokens_goes_by_its_own_name(server: RunningGateway) -> None:
    error = server.chat(max_completion_tokens=3000).json()["error"]
    assert error["param"] == "max_completion_tokens"


def test_tokens_beyond_the_room_are_left_to_the_engine(server: RunningGateway) -> None:
    assert server.chat(max_tokens=2048).status_code == 200


@pytest.mark.parametrize(("min_tokens", "status"), [(3, 200), (4, 400)])
def test_least_tokens_stay_below_the_most(server: RunningGateway, min_tokens: int, status: int) -> None:
    assert server.chat(max_tokens=3, min_tokens=min_tokens).status_code == status


def test_rivals_need_logprobs(server: RunningGateway) -> None:
    for logprobs in (None, False):
        assert server.chat(logprobs=logprobs, top_logprobs=1).json()["error"]["param"] == "top_logprobs"


@pytest.mark.parametrize("value", [6, -1, "1", True])
def test_legacy_logprobs_have_their_own_range(server: RunningGateway, value: Any) -> None:
    assert server.complete(logprobs=value).json()["error"]["param"] == "logprobs"


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_refused_in_openais_words(server: RunningGateway, stream: bool) -> None:
    response = server.chat(messages=[{"role": "user", "content": "word " * 4000}], stream=stream)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert "This model's maximum context length is 2048 tokens" in error["message"]
    assert server.complete(prompt="word " * 4000).json()["error"]["param"] == "prompt"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls[0].function"),
    ],
)
def test_a_bad_message_is_found(server: RunningGateway, message: dict[str, Any], param: str) -> None:
    response = server.chat(messages=[message])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_contradicting_ends_of_the_prompt_are_refused(server: RunningGateway) -> None:
    response = server.chat(add_generation_prompt=True, continue_final_message=True)
    assert response.json()["error"]["param"] == "continue_final_message"


def test_an_allowed_template_argument_is_taken(server: RunningGateway) -> None:
    assert server.chat(chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low").status_code == 200


def test_an_unknown_model_is_a_404(server: RunningGateway) -> None:
    for response in (server.chat(model="x" * 1000), server.http.get("/v1/models/x")):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "model_not_found"
        assert len(response.content) < 500


def test_long_values_are_not_repeated_in_errors(server: RunningGateway) -> None:
    response = server.chat(messages=[{"role": "x" * 100_000, "content": "y"}])
    assert response.status_code == 400
    assert len(response.content) < 1000
