"""`/v1/completions`: prompts, numbering, best_of, the legacy shapes."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine import Request
from core_engine.text import TextModel
from tests.gateway.events import read_events
from tests.gateway.fake_engine import Script
from tests.gateway.running import RunningGateway


def test_an_answer_has_every_field(server: RunningGateway) -> None:
    answer = server.complete().json()
    assert answer.pop("id").startswith("cmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": "Hi.", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 4,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_sixteen_tokens_by_default(server: RunningGateway) -> None:
    server.engine.script = server.saying("x" * 100)
    answer = server.complete().json()
    assert answer["choices"][0]["text"] == "x" * 16
    assert answer["choices"][0]["finish_reason"] == "length"


def test_streams_use_the_same_object(server: RunningGateway) -> None:
    events = read_events(server.complete(stream=True, stream_options={"include_usage": True}).content)
    assert {chunk["object"] for chunk in events.chunks} == {"text_completion"}
    assert (events.text(), events.finish_reason(), events.done) == ("Hi.", "stop", True)
    assert events.chunks[-1]["usage"] == server.complete().json()["usage"]


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("one", ["one"]),
        (["one"], ["one"]),
        (["one", "two"], ["one", "two"]),
        ([70, 71], ["de"]),
        ([[70], [71, 72]], ["d", "ef"]),
    ],
)
def test_prompts_come_in_four_forms(server: RunningGateway, prompt: Any, texts: list[str]) -> None:
    answer = server.complete(prompt=prompt).json()
    asked = [server.text_model.decode(request.prompt_token_ids) for request in server.engine.submitted]
    assert asked == texts
    assert len(answer["choices"]) == len(texts)
    assert answer["usage"]["prompt_tokens"] == sum(len(r.prompt_token_ids) for r in server.engine.submitted)


def echoing(text_model: TextModel) -> Script:
    """Every sample says its prompt, its number and a different number of dots."""

    def tokens(request: Request, index: int) -> list[int]:
        prompt = text_model.decode(request.prompt_token_ids)
        text = f"{prompt}{index}" + "." * (len(prompt) * (2 - index))
        return [*text_model.encode(text, add_special_tokens=False), text_model.eos_token_ids[0]]

    return Script(tokens=tokens)


@pytest.mark.parametrize("stream", [False, True])
def test_choices_are_numbered_by_prompt_then_sample(server: RunningGateway, stream: bool) -> None:
    server.engine.script = echoing(server.text_model)
    response = server.complete(prompt=["aaa", "b", "cc"], n=2, stream=stream, max_tokens=50)
    if stream:
        events = read_events(response.content)
        texts = [events.text(index) for index in range(6)]
        assert {events.finish_reason(index) for index in range(6)} == {"stop"}
    else:
        choices = response.json()["choices"]
        assert [choice["index"] for choice in choices] == list(range(6))
        texts = [choice["text"] for choice in choices]
    assert [text.rstrip(".") for text in texts] == ["aaa0", "aaa1", "b0", "b1", "cc0", "cc1"]
    assert not server.engine.running


def test_the_best_samples_are_given(server: RunningGateway) -> None:
    # Of the fake engine's samples the last is the most probable.
    server.engine.script = server.saying("worst", "middle", "best")
    answer = server.complete(best_of=3, n=2).json()
    assert [choice["text"] for choice in answer["choices"]] == ["best", "middle"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["choices"][0]["logprobs"] is None
    tokens = sum(len(server.text_model.encode(text)) + 1 for text in ("worst", "middle", "best"))
    assert answer["usage"]["completion_tokens"] == tokens
    assert (server.engine.submitted[0].n, server.engine.submitted[0].sampling.logprobs) == (3, 0)


@pytest.mark.parametrize(
    "fields", [{"best_of": 1, "n": 2}, {"best_of": 2, "stream": True}, {"best_of": 2, "n": 2, "stream": True}]
)
def test_impossible_best_of_is_refused(server: RunningGateway, fields: dict[str, Any]) -> None:
    answer = server.complete(**fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "best_of")


def test_legacy_logprobs_are_parallel_lists(server: RunningGateway) -> None:
    logprobs = server.complete(logprobs=2).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["H", "i", "."]
    assert logprobs["token_logprobs"] == [-1.0] * 3
    assert [len(rivals) for rivals in logprobs["top_logprobs"]] == [2] * 3
    assert logprobs["top_logprobs"][0]["H"] == -1.0
    assert logprobs["text_offset"] == [0, 1, 2]


def test_no_rivals_is_not_off(server: RunningGateway) -> None:
    logprobs = server.complete(logprobs=0).json()["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"H": -1.0}, {"i": -1.0}, {".": -1.0}]


def test_streamed_offsets_go_on_over_chunks(server: RunningGateway) -> None:
    server.engine.script = server.saying("a long text in pieces", together=2)
    events = read_events(server.complete(stream=True, logprobs=1, max_tokens=50).content)
    parts = [choice["logprobs"] for choice in events.choices() if choice["logprobs"]]
    tokens = [token for part in parts for token in part["tokens"]]
    assert "".join(tokens) == events.text()
    expected = [len("".join(tokens[:count])) for count in range(len(tokens))]
    assert [offset for part in parts for offset in part["text_offset"]] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_need_no_engine(server: RunningGateway, stream: bool) -> None:
    response = server.complete(prompt=["a", "b"], max_tokens=0, stream=stream, stream_options={"include_usage": True})
    if stream:
        events = read_events(response.content)
        assert [events.finish_reason(0), events.finish_reason(1)] == ["length", "length"]
        usage = events.chunks[-1]["usage"]
    else:
        assert [(c["text"], c["finish_reason"]) for c in response.json()["choices"]] == [("", "length")] * 2
        usage = response.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2, 0)
    assert not server.engine.submitted


def test_a_suffix_is_refused(server: RunningGateway) -> None:
    answer = server.complete(suffix="x")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "suffix")
    assert server.complete(suffix=None).status_code == 200


@pytest.mark.parametrize(
    "prompt", [[], "", [""], [[]], ["a", 1], [1, [2]], [-1], [10**6], [["a"]], {"a": 1}, [1.0], [None], True]
)
def test_a_bad_prompt_is_refused(server: RunningGateway, prompt: Any) -> None:
    answer = server.complete(prompt=prompt)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("prompt")
    assert not server.engine.submitted


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a"] * 513}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 128}, "n"),
        ({"prompt": [[1]] * 400, "best_of": 3}, "best_of"),
    ],
)
def test_too_many_completions_are_refused(server: RunningGateway, fields: dict[str, Any], param: str) -> None:
    answer = server.complete(**fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_text_of_special_tokens_is_shown_on_request(server: RunningGateway) -> None:
    server.engine.script = server.saying("a<|im_start|>b")
    assert server.complete().json()["choices"][0]["text"] == "ab"
    assert server.complete(skip_special_tokens=False).json()["choices"][0]["text"] == "a<|im_start|>b"


def test_one_refused_prompt_refuses_all(server: RunningGateway) -> None:
    long = [5] * 3000
    answer = server.complete(prompt=[[5], long])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert not server.engine.submitted
