"""ChoiceText: what is shown, what is held back, and which tokens go with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine import FinishReason, SequenceOutput, TokenLogprobs
from core_engine.text import TextModel
from gateway.choice import ChoiceText, Piece, join_pieces
from gateway.deltas import said
from gateway.tools.hermes import hermes
from gateway.tools.reading import SteppedReader
from gateway.tools.source import Source, Steps
from gateway.tools.thoughts import thoughts


def outputs(
    token_ids: Sequence[int], sizes: Sequence[int], reason: FinishReason = "length", stop_token_id: int | None = None
) -> list[SequenceOutput]:
    """The tokens in groups of these sizes, the rest one by one."""
    groups, position = [], 0
    for size in [*sizes, *[1] * len(token_ids)]:
        if position < len(token_ids):
            groups.append(list(token_ids[position : position + size]))
            position += size
    last = len(groups) - 1
    return [
        SequenceOutput(
            "r",
            0,
            group,
            [TokenLogprobs(-1.0, []) for _ in group],
            reason if number == last else None,
            stop_token_id if number == last else None,
        )
        for number, group in enumerate(groups)
    ]


def choice(text_model: TextModel, **options: Any) -> ChoiceText:
    return ChoiceText(text_model, 0, **{"stops": [], "min_tokens": 0, "skip_special_tokens": True, **options})


def run(text_model: TextModel, new: list[SequenceOutput], **options: Any) -> list[Piece]:
    followed = choice(text_model, **options)
    return [piece for output in new if (piece := followed.push(output)) is not None]


def spelled(text_model: TextModel, piece: Piece) -> bytes:
    return b"".join(text_model.token_bytes(entry.token_id) for entry in piece.entries)


def test_characters_are_never_split(text_model: TextModel) -> None:
    text = "naïve 🚌 東京"
    pieces = run(text_model, outputs(text_model.encode(text), []))
    assert join_pieces(pieces)[0].text == text
    assert not any("\ufffd" in piece.text for piece in pieces)


def test_half_a_character_at_the_end_is_shown_as_a_replacement(text_model: TextModel) -> None:
    new = outputs(text_model.encode("a🚌")[:-1], [])
    assert join_pieces(run(text_model, new))[0].text == "a\ufffd"


def test_a_stop_string_cuts_and_its_tokens_go(text_model: TextModel) -> None:
    new = outputs(text_model.encode("one two three", add_special_tokens=False), [])
    whole = join_pieces(run(text_model, new, stops=["o th"]))[0]
    assert whole.text == "one tw"
    assert whole.finish_reason == "stop"
    assert spelled(text_model, whole).startswith(b"one tw")
    assert b"th" not in spelled(text_model, whole)


def test_tokens_after_a_stop_string_do_not_count(text_model: TextModel) -> None:
    token_ids = text_model.encode("abcdefgh", add_special_tokens=False)
    counts = set()
    for sizes in ([], [len(token_ids)]):
        followed = choice(text_model, stops=["d"])
        for output in outputs(token_ids, sizes):
            followed.push(output)
        counts.add(followed.num_tokens)
    (count,) = counts
    assert count < len(token_ids)


def test_what_was_held_back_is_shown_in_the_end(text_model: TextModel) -> None:
    new = outputs(text_model.encode("alpha omeg"), [])
    pieces = run(text_model, new, stops=["omega"])
    assert join_pieces(pieces)[0].text == "alpha omeg"
    assert "omeg" in pieces[-1].text
    assert spelled(text_model, join_pieces(pieces)[0]) == b"alpha omeg"


def test_the_token_that_ends_a_sequence_is_no_text_and_no_entry(text_model: TextModel) -> None:
    token_ids = text_model.encode("yes", add_special_tokens=False)
    plain = text_model.encode("!", add_special_tokens=False)[0]
    followed = choice(text_model, skip_special_tokens=False)
    pieces = [piece for output in outputs([*token_ids, plain], [], "stop", plain) if (piece := followed.push(output))]
    whole = join_pieces(pieces)[0]
    assert (whole.text, whole.finish_reason) == ("yes", "stop")
    assert followed.num_tokens == len(token_ids) + 1
    assert [entry.token_id for entry in whole.entries] == token_ids
    assert whole.token_ids == [*token_ids, plain]


def test_stop_strings_wait_for_the_least_number_of_tokens(text_model: TextModel) -> None:
    token_ids = text_model.encode("xxxxxx", add_special_tokens=False)
    assert len(token_ids) == 6
    assert join_pieces(run(text_model, outputs(token_ids, []), stops=["x"], min_tokens=3))[0].text == "xxx"


def test_nothing_follows_the_end(text_model: TextModel) -> None:
    followed = choice(text_model, stops=["b"])
    first, *rest = outputs(text_model.encode("bcd", add_special_tokens=False), [])
    piece = followed.push(first)
    assert piece is not None
    assert piece.finish_reason == "stop"
    assert [followed.push(output) for output in rest] == [None] * len(rest)


@pytest.mark.parametrize("hidden", [True, False])
def test_special_tokens_inside_are_shown_on_request(text_model: TextModel, hidden: bool) -> None:
    token_ids = text_model.encode("a<|im_start|>b", add_special_tokens=False)
    whole = join_pieces(run(text_model, outputs(token_ids, []), skip_special_tokens=hidden))[0]
    assert whole.text == ("ab" if hidden else "a<|im_start|>b")
    assert [entry.token_id for entry in whole.entries] == token_ids


TEXTS = st.text(alphabet=st.sampled_from("ab ñ🚌x"), min_size=1, max_size=30)


@given(
    text=TEXTS, stops=st.lists(TEXTS.map(lambda t: t[:3]), max_size=3), sizes=st.lists(st.integers(1, 6), max_size=10)
)
def test_a_choice_is_the_same_however_its_tokens_arrive(
    text_model: TextModel, text: str, stops: list[str], sizes: list[int]
) -> None:
    token_ids = text_model.encode(text, add_special_tokens=False)
    one_by_one = join_pieces(run(text_model, outputs(token_ids, []), stops=stops))[0]
    in_groups = join_pieces(run(text_model, outputs(token_ids, sizes), stops=stops))[0]
    assert in_groups == one_by_one
    cuts = [text.index(stop) for stop in stops if stop in text]
    assert not any(stop in one_by_one.text for stop in stops)
    assert text.startswith(one_by_one.text)
    assert bool(cuts) == (one_by_one.text != text)
    assert one_by_one.finish_reason == ("stop" if cuts else "length")
    # Entries spell the text; a stop that cuts inside a token leaves the token whole.
    assert spelled(text_model, one_by_one).startswith(one_by_one.text.encode())
    if not cuts:
        assert spelled(text_model, one_by_one) == text.encode()


@given(text=TEXTS, stop=TEXTS.map(lambda t: t[:4]))
def test_entries_never_run_ahead_of_the_text(text_model: TextModel, text: str, stop: str) -> None:
    followed = choice(text_model, stops=[stop])
    shown, offsets = 0, []
    for output in outputs(text_model.encode(text, add_special_tokens=False), []):
        piece = followed.push(output)
        if piece is None:
            continue
        shown += len(piece.text)
        offsets += [entry.offset for entry in piece.entries]
        if piece.finish_reason is None:
            assert all(offset < shown for offset in offsets)
    assert offsets == sorted(offsets)


CALL = '<tool_call>{"name": "f", "arguments": {"a": "é"}}</tool_call>'
PARTS = st.sampled_from(["<think>", "</think>", CALL, '<tool_call>{"name": "g', "🚌", "a", "b", " ", "\n", "<"])


def reader() -> SteppedReader:
    source = Source(["f"], one_call=False, new_id=lambda: "id")

    def steps() -> Steps[None]:
        yield from thoughts(source, opened=False)
        yield from hermes(source)

    return SteppedReader(source, steps())


@given(
    parts=st.lists(PARTS, min_size=1, max_size=8),
    stops=st.lists(st.sampled_from(["a", "ab", "b ", "name", "<", "é", "g"]), max_size=2),
    sizes=st.lists(st.integers(1, 9), max_size=12),
)
def test_a_choice_that_is_read_is_the_same_however_its_tokens_arrive(
    text_model: TextModel, parts: list[str], stops: list[str], sizes: list[int]
) -> None:
    text = "".join(parts)
    token_ids = text_model.encode(text, add_special_tokens=False)
    one_by_one = join_pieces(run(text_model, outputs(token_ids, []), stops=stops, reader=reader()))[0]
    in_groups = join_pieces(run(text_model, outputs(token_ids, sizes), stops=stops, reader=reader()))[0]
    assert in_groups == one_by_one
    assert not any(stop in one_by_one.text.split(CALL)[0] for stop in stops) or said(one_by_one.deltas).calls
    unread = join_pieces(run(text_model, outputs(token_ids, [])))[0]
    # A stop string drops the entries of what it cuts; what is read drops none.
    assert unread.entries[: len(one_by_one.entries)] == one_by_one.entries
    if not stops:
        assert one_by_one.entries == unread.entries
