"""Calls of tools in answers, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.events import Events, read_events
from tests.gateway.running import RunningGateway
from tests.gateway.tool_examples import NOW, OSLO, TOOLS, choice_of, functions, message_of


def streamed(events: Events, index: int = 0) -> list[dict[str, Any]]:
    """The calls of a stream, put together as clients do."""
    calls: list[dict[str, Any]] = []
    for choice in events.choices(index):
        for delta in choice["delta"].get("tool_calls", []):
            if delta["index"] == len(calls):
                assert delta["function"]["arguments"] == ""
                calls.append({**delta, "function": dict(delta["function"])})
            else:
                assert delta.keys() == {"index", "function"}
                calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return [{key: value for key, value in call.items() if key != "index"} for call in calls]


def test_a_call_becomes_a_message(server: RunningGateway) -> None:
    choice = choice_of(server, OSLO)
    (call,) = choice["message"].pop("tool_calls")
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "weather", "arguments": '{"town": "Oslo"}'}}
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}
    assert choice["finish_reason"] == "tool_calls"


def test_text_may_come_first(server: RunningGateway) -> None:
    message = message_of(server, f"Let me look.\n{OSLO}\n{NOW}")
    assert message["content"] == "Let me look."
    assert functions(message) == [("weather", {"town": "Oslo"}), ("time", {})]
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_an_answer_without_calls_is_an_ordinary_one(server: RunningGateway) -> None:
    choice = choice_of(server, "It is 5 o'clock. ")
    assert choice["message"] == {"role": "assistant", "content": "It is 5 o'clock. ", "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_a_malformed_call_is_text(server: RunningGateway) -> None:
    text = '<tool_call>{"name": weather}</tool_call>'
    choice = choice_of(server, text)
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("together", [1, 4, 1000])
def test_a_stream_says_the_same(server: RunningGateway, together: int) -> None:
    texts = (f"Let me look. {OSLO}{NOW}", "No need.")
    server.engine.script = server.saying(*texts, together=together)
    fields = {"tools": TOOLS, "n": 2, "logprobs": True, "return_token_ids": True}
    whole = server.chat(**fields).json()
    events = read_events(server.chat(stream=True, stream_options={"include_usage": True}, **fields).content)
    for index, choice in enumerate(whole["choices"]):
        calls = streamed(events, index)
        for call in [*calls, *choice["message"].get("tool_calls", [])]:
            call.pop("id")
        assert calls == choice["message"].get("tool_calls", [])
        assert events.text(index) == choice["message"]["content"]
        assert events.finish_reason(index) == choice["finish_reason"]
        assert events.entries(index) == choice["logprobs"]["content"]
        token_ids = [token for part in events.choices(index) for token in part.get("token_ids", [])]
        assert token_ids == choice["token_ids"]
        spelled = bytes(byte for entry in choice["logprobs"]["content"] for byte in entry["bytes"])
        assert spelled.decode() == texts[index]
    assert events.chunks[-1]["usage"] == whole["usage"]


def test_no_wrapping_is_streamed(server: RunningGateway) -> None:
    server.engine.script = server.saying(f"Well. {OSLO}")
    events = read_events(server.chat(stream=True, tools=TOOLS).content)
    assert events.text() == "Well."
    pieces = [delta for choice in events.choices() for delta in choice["delta"].get("tool_calls", [])]
    assert len(pieces) > 3
    assert all(delta["index"] == 0 for delta in pieces)


def test_one_call_at_a_time_ends_the_work_after_it(server: RunningGateway) -> None:
    server.engine.script = server.saying(f"{OSLO}{NOW} and on", end=False)
    (choice,) = server.chat(tools=TOOLS, parallel_tool_calls=False).json()["choices"]
    assert functions(choice["message"]) == [("weather", {"town": "Oslo"})]
    assert choice["finish_reason"] == "tool_calls"
    assert server.engine.cancelled == [server.engine.submitted[0].id]


def test_a_stop_string_looks_at_text_only(server: RunningGateway) -> None:
    assert functions(message_of(server, OSLO, stop=["Oslo", "tool", "}"])) == [("weather", {"town": "Oslo"})]
    choice = choice_of(server, f"Wait here. {OSLO}", stop=["here"])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Wait ", "stop")
    choice = choice_of(server, f"a{OSLO}b", stop=["ab"])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("ab", "tool_calls")
    choice = choice_of(server, f"{OSLO} then stop here", stop=["stop"])
    assert (choice["message"]["content"], choice["finish_reason"]) == (" then ", "tool_calls")


def test_a_stop_string_is_found_in_what_looked_like_a_call(server: RunningGateway) -> None:
    choice = choice_of(server, 'Say <tool_call>{"name": wrong} END', stop=["wrong"], logprobs=True)
    assert (choice["message"]["content"], choice["finish_reason"]) == ('Say <tool_call>{"name": ', "stop")
    spelled = bytes(byte for entry in choice["logprobs"]["content"] for byte in entry["bytes"]).decode()
    assert spelled.startswith('Say <tool_call>{"name": ')
    assert "wrong" not in spelled


def test_a_call_cut_by_the_limit_says_length(server: RunningGateway) -> None:
    server.engine.script = server.saying(OSLO)
    whole = len(server.text_model.encode(OSLO))
    for max_tokens in (1, whole - 12, whole - 2):
        (choice,) = server.chat(tools=TOOLS, max_tokens=max_tokens).json()["choices"]
        assert choice["finish_reason"] == "length"
        assert choice["message"].get("tool_calls") or choice["message"]["content"]
