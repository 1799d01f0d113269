"""`/v1/chat/completions`: shape, parameters, streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core_engine import SamplingParams
from core_engine.text import TextModel
from tests.gateway.events import read_events
from tests.gateway.running import RunningGateway


def prompt_of(server: RunningGateway) -> str:
    (request,) = server.engine.submitted
    return server.text_model.decode(request.prompt_token_ids, skip_special_tokens=False)


def sampling_of(server: RunningGateway) -> SamplingParams:
    (request,) = server.engine.submitted
    return request.sampling


def test_an_answer_has_every_field(server: RunningGateway) -> None:
    server.engine.script = server.saying("Hi.", cached_tokens=3)
    answer = server.chat().json()
    prompt_tokens = len(server.engine.submitted[0].prompt_token_ids)
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 4,
            "total_tokens": prompt_tokens + 4,
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    }


def test_a_stream_has_a_role_text_and_one_reason(server: RunningGateway) -> None:
    events = read_events(server.chat(stream=True).content)
    assert events.done
    assert len({(chunk["id"], chunk["created"]) for chunk in events.chunks}) == 1
    assert {chunk["object"] for chunk in events.chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in events.chunks)
    first, *_, last = events.choices()
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert last["delta"] == {}
    assert events.text() == "Hi."
    assert events.finish_reason() == "stop"


def test_usage_comes_last_where_it_is_asked_for(server: RunningGateway) -> None:
    plain = server.chat().json()
    events = read_events(server.chat(stream=True, stream_options={"include_usage": True}).content)
    *others, last = events.chunks
    assert last["choices"] == []
    assert last["usage"] == plain["usage"]
    assert all(chunk["usage"] is None for chunk in others)


def test_stream_options_of_a_plain_request_change_nothing(server: RunningGateway) -> None:
    assert server.chat(stream=False, stream_options={"include_usage": True}).json()["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stop", ["two", ["nothing", "two"]])
def test_a_stop_string_ends_the_work_too(server: RunningGateway, stop: Any) -> None:
    server.engine.script = server.saying("one two three four five", end=False)
    answer = server.chat(stop=stop).json()
    assert answer["choices"][0]["message"]["content"] == "one "
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert server.engine.cancelled == [server.engine.submitted[0].id]


def test_no_part_of_a_stop_string_is_streamed(server: RunningGateway) -> None:
    server.engine.script = server.saying("abcabcabd tail")
    events = read_events(server.chat(stream=True, stop=["abcabd"]).content)
    assert events.text() == "abc"
    assert "".join(events.texts()) == "abc"
    assert events.finish_reason() == "stop"


@pytest.mark.parametrize("together", [1, 3, 100])
def test_a_stream_is_the_plain_answer_in_pieces(server: RunningGateway, together: int) -> None:
    server.engine.script = server.saying("Grüße, 🚌! And so on until enough.", together=together)
    fields = {"stop": ["enough"], "logprobs": True, "top_logprobs": 2}
    plain = server.chat(**fields).json()["choices"][0]
    events = read_events(server.chat(stream=True, **fields).content)
    assert events.text() == plain["message"]["content"] == "Grüße, 🚌! And so on until "
    assert events.finish_reason() == plain["finish_reason"]
    assert events.entries() == plain["logprobs"]["content"]


def test_two_choices_stream_side_by_side(server: RunningGateway) -> None:
    server.engine.script = server.saying("first", "the second")
    events = read_events(server.chat(stream=True, n=2).content)
    for index, text in enumerate(("first", "the second")):
        assert events.choices(index)[0]["delta"]["role"] == "assistant"
        assert events.text(index) == text
        assert events.finish_reason(index) == "stop"


def test_choices_come_in_order(server: RunningGateway) -> None:
    server.engine.script = server.saying("a long first one", "second")
    choices = server.chat(n=2).json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["a long first one", "second"]
    assert [choice["index"] for choice in choices] == [0, 1]


def test_a_choice_that_a_stop_string_ended_waits_for_its_sibling(server: RunningGateway) -> None:
    server.engine.script = server.saying("x stop x", "a longer text that ends")
    choices = server.chat(n=2, stop=["stop"]).json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["x ", "a longer text that ends"]


def test_logprobs_spell_the_text(server: RunningGateway, text_model: TextModel) -> None:
    server.engine.script = server.saying("né")
    entries = server.chat(logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "né"
    for entry in entries:
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"]
        assert len(entry["top_logprobs"]) == 2
    assert sampling_of(server).logprobs == 2


def test_logprobs_without_rivals_are_on(server: RunningGateway) -> None:
    entries = server.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in entries] == [[]] * 3
    assert sampling_of(server).logprobs == 0


def test_parameters_reach_the_engine(server: RunningGateway) -> None:
    fields = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
        "repetition_penalty": 1.2, "min_tokens": 1, "max_tokens": 9, "seed": -5, "logit_bias": {"7": -100},
        "stop_token_ids": [8], "allowed_token_ids": [7, 8], "ignore_eos": True, "bad_words": ["bus"],
        "priority": -3, "cache_salt": "salt", "n": 2,
    }  # fmt: skip
    assert server.chat(**fields).status_code == 200
    (request,) = server.engine.submitted
    bad = {tuple(server.text_model.encode(text, add_special_tokens=False)) for text in ("bus", " bus")}
    assert set(request.sampling.bad_words_token_ids) == bad
    assert request.sampling == SamplingParams(
        max_tokens=9, min_tokens=1, temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, presence_penalty=1,
        frequency_penalty=-1, repetition_penalty=1.2, logit_bias={7: -100}, allowed_token_ids=(7, 8),
        bad_words_token_ids=request.sampling.bad_words_token_ids, stop_token_ids=(8,), ignore_eos=True, seed=-5,
    )  # fmt: skip
    assert (request.n, request.priority, request.cache_salt, request.model) == (2, -3, "salt", "tiny")


def test_what_is_absent_or_null_is_the_default(server: RunningGateway) -> None:
    optional = (
        "top_p n stop seed presence_penalty frequency_penalty logit_bias logprobs top_logprobs response_format tools "
        "tool_choice parallel_tool_calls stream stream_options user metadata service_tier store top_k min_p max_tokens "
        "repetition_penalty min_tokens stop_token_ids ignore_eos priority max_completion_tokens structured_outputs "
        "temperature skip_special_tokens bad_words allowed_token_ids chat_template chat_template_kwargs cache_salt "
        "truncate_prompt_tokens return_token_ids prompt_logprobs add_generation_prompt continue_final_message"
    )
    assert server.chat(**dict.fromkeys(optional.split()), some_unknown_field={"a": 1}).status_code == 200
    assert sampling_of(server) == SamplingParams()


@pytest.mark.parametrize(("top_k", "expected"), [(-1, 0), (0, 0), (5, 5)])
def test_top_k_has_two_ways_to_be_off(server: RunningGateway, top_k: int, expected: int) -> None:
    server.chat(top_k=top_k)
    assert sampling_of(server).top_k == expected


def test_an_empty_nucleus_is_the_best_token(server: RunningGateway) -> None:
    server.chat(top_p=0)
    assert (sampling_of(server).top_p, sampling_of(server).top_k) == (1.0, 1)


def test_the_newer_name_of_max_tokens_wins(server: RunningGateway) -> None:
    server.chat(max_tokens=9, max_completion_tokens=3)
    assert sampling_of(server).max_tokens == 3


def test_messages_of_every_role_are_rendered(server: RunningGateway) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    assert server.chat(messages=messages).status_code == 200
    assert prompt_of(server) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name":"f","arguments":{}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_control_tokens_in_content_are_plain_text(server: RunningGateway) -> None:
    server.chat(messages=[{"role": "user", "content": "<|im_end|>"}])
    (request,) = server.engine.submitted
    assert request.prompt_token_ids.count(server.eos) == 1


def test_the_last_message_can_be_continued(server: RunningGateway) -> None:
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two"}]
    assert server.chat(messages=messages, continue_final_message=True).status_code == 200
    assert prompt_of(server).endswith("<|im_start|>assistant\nOne, two")


def test_a_prompt_can_be_cut_from_the_left(server: RunningGateway) -> None:
    server.chat(truncate_prompt_tokens=5)
    assert len(server.engine.submitted[0].prompt_token_ids) == 5
    assert prompt_of(server).endswith("assistant\n")


def test_token_ids_are_told_on_request(server: RunningGateway) -> None:
    answer = server.chat(return_token_ids=True).json()
    (request,) = server.engine.submitted
    spoken = [*server.text_model.encode("Hi."), server.eos]
    assert answer["prompt_token_ids"] == request.prompt_token_ids
    assert answer["choices"][0]["token_ids"] == spoken
    events = read_events(server.chat(return_token_ids=True, stream=True).content)
    assert events.chunks[0]["prompt_token_ids"] == request.prompt_token_ids
    assert [token for choice in events.choices() for token in choice.get("token_ids", [])] == spoken


def test_limits_of_admission_become_headers(server: RunningGateway) -> None:
    limits = {"limit-requests": "10", "x-ratelimit-remaining-requests": "9", "bad name\r\n": "1", "reset": "a\r\nb"}
    for stream in (False, True):
        server.engine.script = server.saying("Hi.", limits=limits)
        headers = server.chat(stream=stream).headers
        found = {name: value for name, value in headers.items() if name.startswith("x-ratelimit")}
        assert found == {"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "9"}


def test_bodies_are_compact_json(server: RunningGateway) -> None:
    content = server.chat().content
    assert json.dumps(json.loads(content), separators=(",", ":"), ensure_ascii=False).encode() == content
