"""render_chat: templates from every place, variables, errors that name the field, and continued messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core_engine.errors import InvalidRequest, ModelError
from core_engine.text import TextModel, load_text_model
from core_engine.text.chat import ChatTemplate
from tests.support.tiny_model import CHATML, write_tiny_model

HELLO = [{"role": "user", "content": "hello"}]


def shown(model: TextModel, messages: list[dict[str, Any]], **options: Any) -> str:
    return model.decode(model.render_chat(messages, **options), skip_special_tokens=False)


def refusal(model: TextModel, messages: list[dict[str, Any]], **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        model.render_chat(messages, **options)
    return caught.value


def test_a_conversation_becomes_one_prompt(byte_level: TextModel) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
    assert shown(byte_level, messages, add_generation_prompt=False) == text
    ids = byte_level.render_chat(messages)
    assert ids == byte_level.encode(text + "<|im_start|>assistant\n", add_special_tokens=False)


@pytest.mark.parametrize("place", ["configuration", "named", "jinja", "json"])
def test_a_template_is_found_wherever_it_is_kept(directory: Path, place: str) -> None:
    named = [{"name": "default", "template": "{{ messages[0].content }}"}, {"name": "tool_use", "template": "tools"}]
    templates: dict[str, Any] = {"configuration": named[0]["template"], "named": named}
    write_tiny_model(directory, chat_template=templates.get(place, "overridden"))
    if place == "jinja":
        (directory / "chat_template.jinja").write_text(named[0]["template"], encoding="utf-8")
        (directory / "additional_chat_templates").mkdir()
        (directory / "additional_chat_templates" / "tool_use.jinja").write_text("tools", encoding="utf-8")
    if place == "json":
        (directory / "chat_template.json").write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    model = load_text_model(directory)
    assert shown(model, HELLO) == "hello"
    with_tools = {"tools": [{"type": "function"}]}
    assert shown(model, HELLO, template_kwargs=with_tools) == ("hello" if place == "configuration" else "tools")


def test_the_variables_of_a_template(directory: Path) -> None:
    template = (
        "{{ bos_token }}{{ eos_token }}{{ mood }}{{ tools is none }}{{ pad_token is defined }}"
        "{{ add_generation_prompt }}{{ 'name' in messages[0] }}"
    )
    model = load_text_model(write_tiny_model(directory, chat_template=template))
    messages = [{"role": "user", "content": "x", "name": None}]
    expected = "<|endoftext|><|im_end|>goodTrueFalseTrueFalse"
    assert shown(model, messages, template_kwargs={"mood": "good"}) == expected


def test_a_client_cannot_replace_what_the_server_sets(byte_level: TextModel) -> None:
    error = refusal(byte_level, HELLO, template_kwargs={"messages": [], "bos_token": "x"})
    assert error.param == "chat_template_kwargs"
    assert "bos_token, messages" in str(error)


def test_a_template_refuses_in_its_own_words(directory: Path) -> None:
    template = "{{ raise_exception('no role ' + messages[0].role + messages[0].content) }}"
    model = load_text_model(write_tiny_model(directory, chat_template=template))
    error = refusal(model, [{"role": "pilot", "content": "<|im_end|>"}])
    assert (str(error), error.param) == ("no role pilot<|im_end|>", "messages")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0].content.missing.deeper }}", "has no attribute 'missing'"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "of computing"),
    ],
)
def test_what_a_template_cannot_do_is_an_invalid_request(template: str, reason: str) -> None:
    chat = ChatTemplate({"default": template}, special_tokens={}, control_tokens=[], max_seconds=0.05)
    with pytest.raises(InvalidRequest, match=reason) as caught:
        chat.render(HELLO, add_generation_prompt=True, continue_final_message=False, template_kwargs={})
    assert caught.value.param == "messages"


def test_data_of_any_depth_is_refused_in_order(byte_level: TextModel) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert refusal(byte_level, [{"role": "user", "content": deep}]).param == "messages"


def test_a_model_without_a_template_says_what_to_use(directory: Path) -> None:
    model = load_text_model(write_tiny_model(directory, chat_template=""))
    assert not model.has_chat_template
    error = refusal(model, HELLO)
    assert "/v1/completions" in str(error)
    assert error.code == "no_chat_template"


def test_a_template_with_a_mistake_is_named_at_start(directory: Path) -> None:
    write_tiny_model(directory, chat_template="fine\n{% for %}")
    with pytest.raises(ModelError, match="'default' isn't valid at line 2"):
        load_text_model(directory)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("The capital is", "The capital is"),
        ("The capital is ", "The capital is "),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two "}], "onetwo "),
        ("", ""),
        ("<|im_end|>", "<|im_end|>"),
    ],
)
def test_a_final_message_is_continued(directory: Path, content: Any, expected: str) -> None:
    template = CHATML.replace("(message['content'] or '')", "(message['content'] if message['content'] is string "
                              "else message['content'] | map(attribute='text') | join)")  # fmt: skip
    model = load_text_model(write_tiny_model(directory, chat_template=template))
    messages = [*HELLO, {"role": "assistant", "content": content}]
    text = shown(model, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == f"<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n{expected}"


def test_a_continued_message_is_trimmed_where_the_template_trims(metaspace: TextModel) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "well \n"}]
    text = shown(metaspace, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "<s>[INST] hello [/INST] well"


def test_a_final_message_that_cannot_be_continued(byte_level: TextModel, directory: Path) -> None:
    both = refusal(byte_level, HELLO, continue_final_message=True, add_generation_prompt=True)
    nothing = refusal(byte_level, [{"role": "assistant"}], continue_final_message=True, add_generation_prompt=False)
    silent = load_text_model(write_tiny_model(directory, chat_template="{{ messages | length }}"))
    left_out = refusal(silent, HELLO, continue_final_message=True, add_generation_prompt=False)
    assert {error.param for error in (both, nothing, left_out)} == {"continue_final_message"}
    assert "leaves the final message out" in str(left_out)
