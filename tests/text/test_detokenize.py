"""IncrementalDetokenizer and the bytes of tokens: the text of an output, however it comes in."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from core_engine.errors import ModelError
from core_engine.text import IncrementalDetokenizer, TextModel
from core_engine.text.vocabulary import TokenBytes

WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
WITH_A_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def pieces_of(model: TextModel, chunks: list[list[int]], *, skip_special_tokens: bool = True) -> list[str]:
    detokenizer = IncrementalDetokenizer(model, skip_special_tokens=skip_special_tokens)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.flush()]


def split(ids: list[int], data: st.DataObject) -> list[list[int]]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=8)))
    return [ids[start:end] for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@WITH_A_FIXTURE
@given(text=WORDS, data=st.data())
def test_pieces_join_to_the_text(model: TextModel, text: str, data: st.DataObject) -> None:
    ids = model.encode(text, add_special_tokens=False)
    pieces = pieces_of(model, split(ids, data))
    joined = "".join(pieces)
    assert joined in {text, " " + text}
    assert model.decode(ids) == joined.removeprefix(" " if model.token_bytes_by_id.leading_spaces else "")
    assert all("\ufffd" not in piece for piece in pieces if "\ufffd" not in text)


@WITH_A_FIXTURE
@given(data=st.data())
def test_any_tokens_give_the_same_text_however_split(model: TextModel, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, model.vocab_size - 1), max_size=40))
    skip = data.draw(st.booleans())
    whole = "".join(pieces_of(model, [ids], skip_special_tokens=skip))
    assert "".join(pieces_of(model, split(ids, data), skip_special_tokens=skip)) == whole
    assert "".join(pieces_of(model, [[token] for token in ids], skip_special_tokens=skip)) == whole


@WITH_A_FIXTURE
@given(data=st.data())
def test_bytes_of_tokens_join_to_the_text(model: TextModel, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, model.vocab_size - 1), max_size=40))
    joined = b"".join(map(model.token_bytes, ids)).decode("utf-8", "replace")
    assert joined == "".join(pieces_of(model, [ids], skip_special_tokens=False))


@settings(max_examples=300)
@given(data=st.data())
def test_byte_level_agrees_with_the_tokenizers_library(byte_level: TextModel, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, byte_level.vocab_size - 1), max_size=40))
    assert byte_level.decode(ids) == byte_level._tokenizer.decode(ids)


@given(text=WORDS)
def test_byte_fallback_agrees_with_the_tokenizers_library(metaspace: TextModel, text: str) -> None:
    ids = metaspace.encode(text)
    assert metaspace.decode(ids) == metaspace._tokenizer.decode(ids)


def test_half_a_character_waits_for_the_other_half(model: TextModel) -> None:
    ids = model.encode("x🎉", add_special_tokens=False)
    parts = pieces_of(model, [[token] for token in ids])
    assert [part for part in parts if part][-1] == "🎉"
    assert "".join(pieces_of(model, [ids[:-1]])).endswith("\ufffd")


def test_a_continuation_keeps_the_space_of_its_first_word(metaspace: TextModel) -> None:
    ids = metaspace.encode("Paris", add_special_tokens=False)
    assert pieces_of(metaspace, [ids]) == [" Paris", ""]
    assert metaspace.decode(ids) == "Paris"


def test_special_tokens_show_only_when_asked(byte_level: TextModel) -> None:
    ids = byte_level.encode("a<|im_end|>b")
    assert "".join(pieces_of(byte_level, [ids])) == "ab"
    assert "".join(pieces_of(byte_level, [ids], skip_special_tokens=False)) == "a<|im_end|>b"


def test_rows_that_pad_a_vocabulary_stand_for_nothing(byte_level: TextModel) -> None:
    assert byte_level.token_bytes(byte_level.vocab_size + 5) == b""
    assert pieces_of(byte_level, [[byte_level.vocab_size + 5]]) == ["", ""]


def word_level(decoder: decoders.Decoder | None) -> TokenBytes:
    tokenizer = Tokenizer(models.WordLevel({"play": 0, "##ing": 1, "we</w>": 2}, unk_token="play"))
    if decoder is not None:
        tokenizer.decoder = decoder
    return TokenBytes(tokenizer)


def test_bytes_of_other_tokenizers() -> None:
    pieces = word_level(decoders.WordPiece())
    assert (pieces[0], pieces[1]) == (b" play", b"ing")
    assert word_level(decoders.BPEDecoder())[2] == b"we "
    assert word_level(None)[0] == b" play"


def test_a_decoder_that_needs_the_whole_text_is_refused() -> None:
    with pytest.raises(ModelError, match="'CTC'"):
        word_level(decoders.CTC())


def test_an_added_token_reads_as_it_is_spelled(byte_level: TextModel) -> None:
    description = json.loads(byte_level._tokenizer.to_str())
    new = {"id": byte_level.vocab_size, "content": "née", "special": False, "normalized": False}
    description["added_tokens"].append({**new, "single_word": False, "lstrip": False, "rstrip": False})
    tokenizer = Tokenizer.from_str(json.dumps(description))
    assert TokenBytes(tokenizer)[byte_level.vocab_size] == "née".encode()
