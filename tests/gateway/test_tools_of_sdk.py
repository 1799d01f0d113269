"""Calls of tools, and what the official SDK makes of them."""

from __future__ import annotations

from typing import Any

import openai

from tests.gateway.running import RunningGateway
from tests.gateway.tool_examples import NOW, OSLO, TOOLS, prompt_of


def test_the_sdk_puts_a_stream_together(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying(f"One moment. {OSLO}\n{NOW}")
    with sdk.chat.completions.stream(
        model="tiny", messages=[{"role": "user", "content": "Hello"}], tools=TOOLS
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [(event.name, event.arguments) for event in done] == [("weather", '{"town": "Oslo"}'), ("time", "{}")]
    assert final.finish_reason == "tool_calls"
    assert final.message.content == "One moment."
    assert [call.function.name for call in final.message.tool_calls or []] == ["weather", "time"]


def test_the_sdk_carries_a_call_and_its_result_back(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying(OSLO)
    messages: list[Any] = [{"role": "user", "content": "Rain?"}]
    message = sdk.chat.completions.create(model="tiny", messages=messages, tools=TOOLS).choices[0].message
    assert message.tool_calls is not None
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain."}]
    server.engine.script = server.saying("Yes.")
    answer = sdk.chat.completions.create(model="tiny", messages=messages, tools=TOOLS).choices[0]
    assert answer.message.content == "Yes."
    assert prompt_of(server).endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name":"weather","arguments":{"town":"Oslo"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nRain.\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
