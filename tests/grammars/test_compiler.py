"""The engine's cache of compiled grammars."""

from __future__ import annotations

import random

import pytest

from core_engine.errors import InvalidRequest
from core_engine.grammars import compiler as module
from core_engine.grammars.compiler import GrammarCompiler
from core_engine.grammars.grammar import Grammar
from core_engine.grammars.vocabulary import Vocabulary
from core_engine.text import TextModel


@pytest.fixture
def compiler(text_model: TextModel) -> GrammarCompiler:
    return GrammarCompiler(lambda: Vocabulary.of(text_model, text_model.vocab_size, text_model.eos_token_ids))


@pytest.mark.slow
def test_what_was_compiled_is_remembered_within_a_bound(compiler: GrammarCompiler) -> None:
    first = compiler.compile(Grammar("regex", "a+")).result()
    assert compiler.compile(Grammar("regex", "a+")).result() is first
    for number in range(300):
        compiler.compile(Grammar("regex", f"a{{{number}}}")).result()
    assert compiler.compile(Grammar("regex", "a+")).result() is not first
    for number in range(20):
        compiler.compile(Grammar("regex", f"b{number}" + "a" * 100_000))
    assert sum(len(grammar.text) for grammar in compiler._cache) < 600_000


def test_refusals_are_told_to_everybody(compiler: GrammarCompiler) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            compiler.compile(Grammar("regex", "(")).result()


def test_a_grammar_that_has_learnt_too_much_is_compiled_anew(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_LEXER_STATES", 300)
    grammar = Grammar("regex", "(a|b)*a(a|b){200}")
    spent = compiler.compile(grammar).result()
    draw = random.Random(0)
    matcher = spent.matcher()
    for _ in range(2000):
        if matcher.failure is not None:
            break
        matcher.advance(draw.choice(matcher.allowed_token_ids()))
        if matcher.is_complete:
            matcher = spent.matcher()
    assert "too many states" in (matcher.failure or "")
    fresh = compiler.compile(grammar).result()
    assert fresh is not spent
    other = fresh.matcher()
    other.allowed_token_ids()
    assert other.failure is None


def test_a_model_without_an_end_of_sequence_follows_nothing(text_model: TextModel) -> None:
    endless = GrammarCompiler(lambda: Vocabulary.of(text_model, text_model.vocab_size, ()))
    with pytest.raises(InvalidRequest, match="end of sequence"):
        endless.compile(Grammar("json_object")).result()
