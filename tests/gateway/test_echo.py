"""`echo` and log-probabilities of prompts, on both endpoints."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from core_engine.text import TextModel, load_text_model
from gateway import echo
from gateway.echo import echoed_prompt
from tests.gateway.events import read_events
from tests.gateway.running import RunningGateway
from tests.support.tiny_model import write_tiny_model

PROMPT = "naïve 🚌 Zürich"


def joined(events: Any, index: int = 0) -> dict[str, list[Any]]:
    """The log-probabilities of a streamed choice in one."""
    parts = [choice["logprobs"] for choice in events.choices(index) if choice["logprobs"]]
    return {name: list(itertools.chain(*(part[name] for part in parts))) for name in parts[0]}


def ask(server: RunningGateway, stream: bool, **fields: Any) -> list[dict[str, Any]]:
    """Choices in order, each with its text, logprobs and reason, streamed or not."""
    response = server.complete(stream=stream, **fields)
    assert response.status_code == 200, response.text
    if not stream:
        return [{k: c[k] for k in ("text", "logprobs", "finish_reason")} for c in response.json()["choices"]]
    events = read_events(response.content)
    indices = sorted({choice["index"] for chunk in events.chunks for choice in chunk["choices"]})
    with_logprobs = fields.get("logprobs") is not None
    return [
        {
            "text": events.text(index),
            "logprobs": joined(events, index) if with_logprobs else None,
            "finish_reason": events.finish_reason(index),
        }
        for index in indices
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_comes_first(server: RunningGateway, stream: bool) -> None:
    (choice,) = ask(server, stream, prompt=PROMPT, echo=True)
    assert choice == {"text": PROMPT + "Hi.", "logprobs": None, "finish_reason": "stop"}
    assert server.engine.submitted[0].sampling.prompt_logprobs is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [0, 2])
@pytest.mark.parametrize("together", [1, 4, 500])
def test_logprobs_cover_prompt_and_output(server: RunningGateway, stream: bool, top: int, together: int) -> None:
    server.engine.script = server.saying("Hi.", prompt_tokens_together=together)
    (choice,) = ask(server, stream, prompt=PROMPT, echo=True, logprobs=top)
    ids = server.text_model.encode(PROMPT)
    text_of = server.text_model.token_text
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == [*map(text_of, ids), "H", "i", "."]
    assert logprobs["token_logprobs"] == [None, *(-float(token) for token in ids[1:]), -1.0, -1.0, -1.0]
    assert logprobs["top_logprobs"][0] is None
    for token, rivals in zip(ids[1:], logprobs["top_logprobs"][1:], strict=False):
        expected = {text_of(token + i): -float(i) for i in range(top, 0, -1)}
        assert rivals == {text_of(token): -float(token)} | expected
    ends = [len(server.text_model.decode(ids[:count]).rstrip("\ufffd")) for count in range(len(ids))]
    assert logprobs["text_offset"] == [*ends, len(PROMPT), len(PROMPT) + 1, len(PROMPT) + 2]
    assert choice["text"] == PROMPT + "Hi."


@pytest.mark.parametrize("stream", [False, True])
def test_every_choice_of_every_prompt_begins_with_its_own(server: RunningGateway, stream: bool) -> None:
    server.engine.script = server.saying("x", "y", prompt_tokens_together=2)
    prompts = ["Alpha beta", "G", "Delta"]
    choices = ask(server, stream, prompt=prompts, echo=True, logprobs=1, n=2)
    assert [choice["text"] for choice in choices] == [p + end for p in prompts for end in ("x", "y")]
    for number, choice in enumerate(choices):
        ids = server.text_model.encode(prompts[number // 2])
        assert choice["logprobs"]["token_logprobs"][: len(ids)] == [None, *(-float(token) for token in ids[1:])]
        assert choice["logprobs"]["text_offset"][-1] == len(prompts[number // 2])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", [PROMPT, "G"])
def test_a_prompt_is_scored_without_an_answer(server: RunningGateway, stream: bool, prompt: str) -> None:
    (choice,) = ask(server, stream, prompt=prompt, echo=True, logprobs=1, max_tokens=0)
    ids = server.text_model.encode(prompt)
    assert (choice["text"], choice["finish_reason"]) == (prompt, "length")
    assert choice["logprobs"]["token_logprobs"] == [None, *(-float(token) for token in ids[1:])]
    assert not server.engine.running


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_alone_needs_no_engine(server: RunningGateway, stream: bool) -> None:
    choices = ask(server, stream, prompt=["ab", "cd"], echo=True, max_tokens=0)
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [("ab", "length"), ("cd", "length")]
    assert not server.engine.submitted


def test_the_best_are_chosen_by_what_they_say(server: RunningGateway) -> None:
    server.engine.script = server.saying("worst", "middle", "best")
    answer = server.complete(prompt="Zu", echo=True, logprobs=1, best_of=3, n=2).json()
    assert [choice["text"] for choice in answer["choices"]] == ["Zubest", "Zumiddle"]
    assert all(choice["logprobs"]["token_logprobs"][0] is None for choice in answer["choices"])


def test_stop_strings_end_the_answer_not_the_prompt(server: RunningGateway) -> None:
    server.engine.script = server.saying("one.two")
    answer = server.complete(prompt="a.b", echo=True, logprobs=0, stop=".", max_tokens=50).json()
    assert answer["choices"][0]["text"] == "a.bone"
    assert answer["choices"][0]["logprobs"]["text_offset"][3] == 3


def test_usage_counts_a_prompt_once(server: RunningGateway) -> None:
    usage = server.complete(prompt="abc", echo=True, logprobs=1).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 4)


def test_ids_of_special_tokens_are_spelled(server: RunningGateway) -> None:
    ids = server.text_model.encode("<|im_start|>a")
    for prompt in (ids, "<|im_start|>a"):
        assert server.complete(prompt=prompt, echo=True).json()["choices"][0]["text"] == "<|im_start|>aHi."


def test_half_a_character_is_shown_as_a_replacement(server: RunningGateway) -> None:
    ids = server.text_model.encode("a🚌")[:-1]
    choice = server.complete(prompt=ids, echo=True, logprobs=0).json()["choices"][0]
    assert choice["text"] == "a\ufffdHi."
    assert choice["logprobs"]["text_offset"][-3:] == [2, 3, 4]


@pytest.fixture(scope="module")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp("metaspace"), kind="metaspace"))


def test_what_the_tokenizer_adds_is_not_shown(metaspace: TextModel) -> None:
    ids = metaspace.encode("The bus stops")
    assert ids[0] == 1
    text = echoed_prompt(metaspace, ids, is_surrounded=True)
    assert (text.text, text.offsets[:2], text.offsets[-1]) == ("The bus stops", [0, 0], 13)
    assert echoed_prompt(metaspace, ids, is_surrounded=False).text.startswith("<s>")


def test_prompt_logprobs_of_completions(server: RunningGateway) -> None:
    answer = server.complete(prompt=["Zürich", "G"], prompt_logprobs=1, n=2).json()
    ids = server.text_model.encode("Zürich")
    expected: list[Any] = [None]
    for token in ids[1:]:
        text = server.text_model.token_text
        own = {"logprob": -float(token), "rank": 2, "decoded_token": text(token)}
        rival = {"logprob": -1.0, "rank": 1, "decoded_token": text(token + 1)}
        expected.append({str(token): own, str(token + 1): rival})
    told = [choice["prompt_logprobs"] for choice in answer["choices"]]
    assert told == [expected, expected, [None], [None]]
    assert [choice["text"] for choice in answer["choices"]] == ["Hi."] * 4
    assert [choice["logprobs"] for choice in answer["choices"]] == [None] * 4


def test_both_kinds_at_once_take_what_they_asked_for(server: RunningGateway) -> None:
    choice = server.complete(prompt="Zug", prompt_logprobs=0, echo=True, logprobs=2).json()["choices"][0]
    assert server.engine.submitted[0].sampling.prompt_logprobs == 2
    assert [len(entry) for entry in choice["prompt_logprobs"][1:]] == [1] * (len(server.text_model.encode("Zug")) - 1)
    assert len(choice["logprobs"]["top_logprobs"][1]) == 3


def test_prompt_logprobs_of_chats(server: RunningGateway) -> None:
    answer = server.chat(prompt_logprobs=2).json()
    ids = server.engine.submitted[0].prompt_token_ids
    assert len(answer["prompt_logprobs"]) == len(ids)
    assert answer["prompt_logprobs"][0] is None
    for token, entries in zip(ids[1:], answer["prompt_logprobs"][1:], strict=True):
        assert next(iter(entries)) == str(token)
        assert [entry["rank"] for entry in entries.values()] == [2, 1, 2]
    assert answer["choices"][0]["message"]["content"] == "Hi."
    assert "prompt_logprobs" not in server.chat().json()


@pytest.mark.parametrize("path", ["chat", "complete"])
def test_prompt_logprobs_are_not_streamed(server: RunningGateway, path: str) -> None:
    answer = getattr(server, path)(stream=True, prompt_logprobs=1)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt_logprobs")
    assert not server.engine.submitted


@pytest.mark.parametrize("value", [-1, 21, 2**31, "1", True, 1.5])
def test_prompt_logprobs_have_bounds(server: RunningGateway, value: Any) -> None:
    for answer in (server.chat(prompt_logprobs=value), server.complete(prompt_logprobs=value)):
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt_logprobs")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True, "n": 30}, "echo"),
        ({"echo": True, "n": 5, "logprobs": 5}, "echo"),
        ({"prompt_logprobs": 20}, "prompt_logprobs"),
    ],
)
def test_what_an_answer_repeats_is_bounded(
    server: RunningGateway, fields: dict[str, Any], param: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo, "MAX_REPEATED", 2000)
    answer = server.complete(prompt=[[5] * 100], **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not server.engine.submitted
    assert server.complete(prompt=[[5] * 50], **fields).status_code == 200


def test_a_prompt_that_fills_the_context_is_scored_but_not_continued(server: RunningGateway) -> None:
    full = [5] * 2048
    assert server.complete(prompt=full, echo=True, logprobs=0, max_tokens=0).status_code == 200
    for fields in ({"max_tokens": 1}, {}):
        answer = server.complete(prompt=full, echo=True, **fields)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert server.complete(prompt=[*full, 5], echo=True, max_tokens=0).status_code == 400
