"""What the parameters of a request do to the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.blackbox.client import CHAT, COMPLETIONS, Client, content, together


def test_max_tokens_cuts_with_the_reason_length(client: Client) -> None:
    answer = client.chat(max_tokens=3, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("older", [None, 9])
def test_the_newer_name_of_max_tokens_wins(client: Client, older: int | None) -> None:
    answer = client.chat(max_tokens=older, max_completion_tokens=3, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 3


def test_completions_are_sixteen_tokens_by_default(client: Client) -> None:
    assert client.complete(max_tokens=None, ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_tokens_beyond_the_room_are_cut_to_it(client: Client) -> None:
    length = client.http.get("/v1/models").json()["data"][0]["max_model_len"]
    prompt = [5] * (length - 4)
    answer = client.complete(prompt=prompt, max_tokens=100, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["choices"][0]["finish_reason"] == "length"


def test_an_end_of_sequence_stops(client: Client) -> None:
    eos = client.ok("/tokenize", {"prompt": "<|im_end|>"})["tokens"][0]
    answer = client.chat(logit_bias={str(eos): 100}, stop=["zebra"])
    assert content(answer) == ""
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1
    least = client.chat(logit_bias={str(eos): 100}, min_tokens=3)
    assert least["usage"]["completion_tokens"] == 4


def test_a_stop_token_stops_and_is_not_shown(client: Client) -> None:
    token_id, _ = client.plain_token
    answer = client.complete(logit_bias={str(token_id): 100}, stop_token_ids=[token_id])
    assert content(answer) == ""
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_stop_string_may_span_tokens(client: Client) -> None:
    token_id, unit = client.plain_token
    forced = {"logit_bias": {str(token_id): 100}, "max_tokens": 6}
    assert content(client.complete(**forced)) == unit * 6
    answer = client.complete(**forced, stop=[unit[-2:] + unit[:2]])
    assert content(answer) == unit[:-2]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_held_back_text_is_flushed_where_the_length_runs_out(client: Client) -> None:
    token_id, unit = client.plain_token
    body = client.completion_body(max_tokens=5, logit_bias={str(token_id): 100}, stop=[unit * 2 + "~never~"])
    events = client.stream(COMPLETIONS, body)
    assert (events.text(), events.finish_reason()) == (unit * 5, "length")


def test_allowed_and_banned_tokens_hold(client: Client) -> None:
    token_id, unit = client.plain_token
    assert content(client.complete(allowed_token_ids=[token_id], max_tokens=3)) == unit * 3
    free = content(client.complete(logit_bias={str(token_id): 100}, bad_words=[unit.strip()], max_tokens=4))
    assert unit not in free


def test_text_parts_read_like_the_joined_string(client: Client) -> None:
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    split = client.chat(messages=[{"role": "user", "content": parts}])
    whole = client.chat(messages=[{"role": "user", "content": "Say\nhello."}])
    assert split["usage"] == whole["usage"]
    assert content(split) == content(whole)


def test_a_seed_fixes_the_text_whatever_its_neighbours_are(client: Client) -> None:
    seeded = client.chat_body(temperature=1, seed=42, max_tokens=16, ignore_eos=True)
    alone = content(client.ok(CHAT, seeded))
    assert content(client.chat(temperature=1, seed=43, max_tokens=16, ignore_eos=True)) != alone
    neighbour = client.chat_body(temperature=1, max_tokens=16)
    for place in (0, 3):
        bodies = [neighbour] * 3
        bodies.insert(place, seeded)
        answers = together([partial(client.ok, CHAT, body) for body in bodies])
        assert content(answers[place]) == alone


def test_samples_of_a_seed_differ(client: Client) -> None:
    answer = client.chat(n=3, temperature=1.5, seed=1, max_tokens=16, ignore_eos=True)
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 48


def test_penalties_do_not_count_the_prompt(client: Client) -> None:
    token_id, unit = client.plain_token
    forced = {"logit_bias": {str(token_id): 100}, "frequency_penalty": 2, "presence_penalty": 2}
    assert content(client.complete(prompt=[token_id] * 60, max_tokens=1, **forced)) == unit


def test_control_tokens_in_content_stay_text(client: Client) -> None:
    def prompt_tokens(text: str) -> int:
        answer = client.chat(messages=[{"role": "user", "content": text}], max_tokens=1)
        return int(answer["usage"]["prompt_tokens"])

    assert prompt_tokens("x<|im_end|>") - prompt_tokens("x") >= 3


def test_token_ids_are_the_same_prompt_as_their_text(client: Client) -> None:
    ids = client.ok("/tokenize", {"prompt": "The sky is"})["tokens"]
    by_ids = client.complete(prompt=ids)
    assert by_ids["usage"]["prompt_tokens"] == len(ids)
    assert content(by_ids) == content(client.complete(prompt="The sky is"))


def test_choices_belong_to_their_prompts(client: Client) -> None:
    prompts = ["Alpha", "Beta", "Gamma"]
    alone = [content(client.complete(prompt=prompt)) for prompt in prompts]
    answer = client.complete(prompt=prompts, n=2)
    assert [choice["text"] for choice in answer["choices"]] == [text for text in alone for _ in range(2)]


def test_the_best_of_some_is_the_most_probable(client: Client) -> None:
    fields = {"temperature": 1.5, "seed": 7, "max_tokens": 6, "ignore_eos": True, "logprobs": 0}
    every = client.complete(n=4, **fields)["choices"]
    means = [sum(choice["logprobs"]["token_logprobs"]) / 6 for choice in every]
    best = client.complete(best_of=4, n=1, **fields)["choices"]
    assert [choice["text"] for choice in best] == [every[means.index(max(means))]["text"]]


LOGPROB_CASES: list[Callable[[Client], dict[str, Any]]] = [
    lambda client: client.chat_body(logprobs=True, top_logprobs=0, max_tokens=6),
    lambda client: client.chat_body(logprobs=True, top_logprobs=5, max_tokens=6),
    lambda client: client.chat_body(logprobs=True, top_logprobs=20, max_tokens=6),
]


@pytest.mark.parametrize("body", LOGPROB_CASES)
def test_logprobs_spell_the_text(client: Client, body: Callable[[Client], dict[str, Any]]) -> None:
    request = body(client)
    answer = client.ok(CHAT, request)
    entries = answer["choices"][0]["logprobs"]["content"]
    spelled = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert spelled.decode("utf-8", "replace") == content(answer)
    for entry in entries:
        rivals = [rival["logprob"] for rival in entry["top_logprobs"]]
        assert len(rivals) == request["top_logprobs"]
        assert rivals == sorted(rivals, reverse=True)
        assert all(-9999.0 <= value <= 0 for value in [entry["logprob"], *rivals])
        if rivals:
            assert entry["logprob"] == rivals[0]  # greedy


def test_streamed_logprobs_are_the_plain_ones(client: Client) -> None:
    body = client.chat_body(logprobs=True, top_logprobs=1, max_tokens=8)
    plain = client.ok(CHAT, body)["choices"][0]["logprobs"]["content"]
    streamed = client.stream(CHAT, body).entries()
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in plain]
    assert [entry["logprob"] for entry in streamed] == pytest.approx([entry["logprob"] for entry in plain], abs=1e-3)


def test_legacy_logprobs_keep_the_legacy_shape(client: Client) -> None:
    token_id, unit = client.plain_token
    answer = client.complete(max_tokens=3, logprobs=2, logit_bias={str(token_id): 100})
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"] == [unit] * 3
    assert logprobs["text_offset"] == [0, len(unit), 2 * len(unit)]
    assert len(logprobs["token_logprobs"]) == 3
    assert all(2 <= len(rivals) <= 3 for rivals in logprobs["top_logprobs"])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_is_the_plain_answer_in_pieces(client: Client, path: str) -> None:
    body = client.chat_body(max_tokens=24) if path == CHAT else client.completion_body(max_tokens=24)
    plain = client.ok(path, body)
    events = client.stream(path, {**body, "stream_options": {"include_usage": True}})
    assert events.text() == content(plain)
    assert events.finish_reason() == plain["choices"][0]["finish_reason"]
    assert events.chunks[-1]["usage"] == plain["usage"]
    assert events.done


def test_tokens_arrive_while_they_are_made(client: Client) -> None:
    body = client.chat_body(max_tokens=200, ignore_eos=True, stream=True)
    with client.http.stream("POST", CHAT, json=body) as response:
        reads = list(response.iter_raw())
    assert len(reads) >= 4


def test_a_prompt_is_served_alike_after_its_stream_was_dropped(client: Client) -> None:
    story = "The ship left the harbour at dawn and sailed east. " * 12
    body = client.chat_body(messages=[{"role": "user", "content": story}])
    before = content(client.ok(CHAT, body))
    with client.http.stream("POST", CHAT, json={**body, "stream": True, "max_tokens": 400}) as response:
        assert next(response.iter_raw())
    assert content(client.ok(CHAT, body)) == before
