"""What a model thinks before it answers goes apart from the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core_engine.text import load_text_model
from tests.gateway.events import read_events
from tests.gateway.running import RunningGateway, running_gateway
from tests.support.plain_http import openai_client
from tests.support.tiny_model import CHATML, write_tiny_model

# Opens the reasoning where it is told to, and shows it in what was said before.
TEMPLATE = CHATML.replace(
    "(message['content'] or '')",
    "('<think>' + message.reasoning_content + '</think>' if message.reasoning_content else '') + message['content']",
) + ("{% if add_generation_prompt and enable_thinking %}{{ '<think>\n' }}{% endif %}{{ reasoning_effort }}")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = load_text_model(write_tiny_model(tmp_path_factory.mktemp("thinker") / "tiny", chat_template=TEMPLATE))
    with running_gateway(model) as running:
        yield running


OPENED = {"chat_template_kwargs": {"enable_thinking": True}}
CALL = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
TIME = {"type": "function", "function": {"name": "time"}}


@pytest.mark.parametrize(
    ("fields", "text", "reasoning", "content"),
    [
        ({}, "<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ({}, "\n<think>a < b</think>Yes.", "a < b", "Yes."),
        ({}, "<think>\n\n</think>\n\nYes.", None, "Yes."),
        ({}, "Yes, <think> is a tag.", None, "Yes, <think> is a tag."),
        ({}, "<thin", None, "<thin"),
        ({}, "<think>Hm", "Hm", None),
        (OPENED, "Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
        (OPENED, "<think>\nHm.</think>Yes.", "Hm.", "Yes."),
        (OPENED, "Hm. </thin", "Hm. </thin", None),
    ],
)
@pytest.mark.parametrize("together", [1, 1000])
def test_reasoning_goes_apart(
    thinker: RunningGateway,
    fields: dict[str, Any],
    text: str,
    reasoning: str | None,
    content: str | None,
    together: int,
) -> None:
    thinker.engine.script = thinker.saying(text, together=together)
    (choice,) = thinker.chat(**fields).json()["choices"]
    assert choice["message"].get("reasoning_content") == reasoning
    assert choice["message"]["content"] == content
    assert choice["finish_reason"] == "stop"
    events = read_events(thinker.chat(stream=True, **fields).content)
    parts = [part["delta"] for part in events.choices()]
    assert "".join(part.get("reasoning_content", "") for part in parts) == (reasoning or "")
    assert events.text() == (content or "")


def test_a_call_follows_reasoning(thinker: RunningGateway) -> None:
    thinker.engine.script = thinker.saying(f"<think>What time is it?</think>\n\n{CALL}")
    (choice,) = thinker.chat(tools=[TIME], stop=["time"]).json()["choices"]
    assert choice["message"]["reasoning_content"] == "What time is it?"
    assert choice["message"]["content"] is None
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["time"]


def test_a_call_in_reasoning_is_only_thought_of(thinker: RunningGateway) -> None:
    thinker.engine.script = thinker.saying(f"<think>I could say {CALL}</think>No.")
    (choice,) = thinker.chat(tools=[TIME]).json()["choices"]
    assert choice["message"]["reasoning_content"] == f"I could say {CALL}"
    assert "tool_calls" not in choice["message"]


def test_the_template_is_told(thinker: RunningGateway) -> None:
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."},
        {"role": "user", "content": "?"},
    ]
    thinker.chat(messages=messages, reasoning_effort="low", **OPENED)
    prompt = thinker.text_model.decode(thinker.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)
    assert "<think>Hm.</think>Yes." in prompt
    assert prompt.endswith("<think>\nlow")


def test_the_sdk_reads_it(thinker: RunningGateway) -> None:
    thinker.engine.script = thinker.saying("<think>Hm.</think>Yes.")
    with (
        openai_client(thinker.url) as sdk,
        sdk.chat.completions.stream(model="tiny", messages=[{"role": "user", "content": "?"}]) as stream,
    ):
        message = stream.get_final_completion().choices[0].message
    assert message.content == "Yes."
    assert (message.model_extra or {})["reasoning_content"] == "Hm."


def test_a_model_that_does_not_reason_is_not_read_for_it(server: RunningGateway) -> None:
    server.engine.script = server.saying("<think>Hm.</think>Yes.")
    assert server.chat().json()["choices"][0]["message"]["content"] == "<think>Hm.</think>Yes."


def test_the_operator_decides(thinking: RunningGateway) -> None:
    thinking.engine.script = thinking.saying("<think>Hm.</think>Yes.")
    assert thinking.chat().json()["choices"][0]["message"]["reasoning_content"] == "Hm."
