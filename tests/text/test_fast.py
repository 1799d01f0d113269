"""FastEncoder: the tokens of the tokenizers library, or none at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors

from core_engine.text import TextModel, load_text_model
from core_engine.text import fast as module
from core_engine.text.fast import fast_encoder
from tests.support.tiny_model import byte_level_tokenizer, metaspace_tokenizer, write_tiny_model

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
Edit = Callable[[Tokenizer], None]


def plain(tokenizer: Tokenizer) -> None:
    """As it comes."""


def digits(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def numbers(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def split(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GPT4), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def surrounded(tokenizer: Tokenizer) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)]
    )


def edited(edit: Edit) -> Tokenizer:
    tokenizer = byte_level_tokenizer()
    edit(tokenizer)
    return tokenizer


KINDS = [plain, digits, numbers, split]


@pytest.mark.parametrize("edit", KINDS)
@given(st.data())
def test_texts_are_split_as_the_tokenizer_does(edit: Edit, data: st.DataObject) -> None:
    tokenizer, encoder = _known(edit)
    piece = st.one_of(
        st.text(max_size=8),
        st.text(st.sampled_from(" \n\t\r1a'é東½\u0301"), max_size=20),
        st.sampled_from(["<|im_start|>", "<|im_end|>", "<think>", "<|im_", "'s", "don't", "123", "capital of France"]),
        st.binary(max_size=8).map(lambda raw: raw.decode("latin-1")),
    )
    text = "".join(data.draw(st.lists(piece, max_size=8)))
    ids = encoder.encode(text)
    assert ids is None or ids == tokenizer.encode(text, add_special_tokens=False).ids


_cache: dict[Edit, Any] = {}


def _known(edit: Edit) -> Any:
    if edit not in _cache:
        tokenizer = edited(edit)
        encoder = fast_encoder(tokenizer)
        assert encoder is not None
        _cache[edit] = tokenizer, encoder
    return _cache[edit]


def lowercased(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Lowercase()


def spaced(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def stripping(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens([AddedToken("<x>", lstrip=True)])


def nested(tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens(["<|im_start|>system"])


def by_white_space(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


@pytest.mark.parametrize("edit", [lowercased, spaced, stripping, nested, by_white_space])
def test_other_forms_are_left_alone(edit: Edit) -> None:
    assert fast_encoder(edited(edit)) is None
    assert fast_encoder(metaspace_tokenizer()) is None


def test_merges_out_of_order_are_left_alone() -> None:
    description = json.loads(byte_level_tokenizer().to_str())
    description["model"]["merges"].reverse()
    assert fast_encoder(Tokenizer.from_str(json.dumps(description))) is None


def test_a_difference_on_the_corpus_rules_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GPT2", module._GPT2.replace(r"| ?\p{L}+", r"|\p{L}+"))
    assert fast_encoder(byte_level_tokenizer()) is None


def test_bytes_without_a_token_are_left_to_the_tokenizer() -> None:
    description = json.loads(byte_level_tokenizer().to_str())
    del description["model"]["vocab"]["z"]
    tokenizer = Tokenizer.from_str(json.dumps(description))
    encoder = fast_encoder(tokenizer)
    assert encoder is not None
    assert encoder.encode("a z b") is None
    assert encoder.encode("a b") == tokenizer.encode("a b").ids


def test_text_that_would_be_normalised_is_left_to_the_tokenizer() -> None:
    _, encoder = _known(split)
    assert encoder.encode("e\u0301") is None
    assert encoder.encode("é") is not None


@pytest.mark.parametrize("run", ["a", " ", "\n", "1", "漢", "!a", "\u0301"])
def test_endless_runs_are_bounded(byte_level: TextModel, run: str) -> None:
    """One run is beyond the bound, the others just below it."""
    tokenizer, encoder = _known(digits)
    long = run * (20_000 // len(run))
    assert encoder.encode(long) is None
    below = (run * (9_990 // len(run)) + ("x" if run.isspace() else " ")) * 3
    assert encoder.encode(below) == tokenizer.encode(below).ids
    assert byte_level.encode(long) == byte_level._tokenizer.encode(long).ids


def test_a_model_encodes_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_tiny_model(tmp_path / "model")
    tokenizer = edited(surrounded)
    tokenizer.save(str(directory / "tokenizer.json"))
    model = load_text_model(directory)
    asked: list[str] = []
    genuine = module.FastEncoder.encode
    monkeypatch.setattr(module.FastEncoder, "encode", lambda self, text: asked.append(text) or genuine(self, text))
    for text in ("", "The bus stops.", "a<|im_end|>b", "naïve 🚌 12"):
        for added in (False, True):
            assert model.encode(text, add_special_tokens=added) == tokenizer.encode(text, add_special_tokens=added).ids
    assert len(asked) == 8
    assert model.outer_token_ids == ((1,), (2,))
    assert model.encode("lone \ud800 surrogate") == tokenizer.encode("lone \ufffd surrogate").ids
