"""GrammarCompiler: the engine's side, a thread that compiles and a cache of what it made."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from core_engine.grammars.grammar import Grammar
from core_engine.grammars.matcher import CompiledGrammar, problem_of
from core_engine.grammars.source import invalid_grammar, source_of
from core_engine.grammars.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# Some grammars take hundreds of times the memory of their text.
_MAX_CACHED_CHARACTERS = 512 * 1024
_MAX_CACHED_GRAMMARS = 256
# The library bounds the work of a step, to some milliseconds; this bounds what is learnt of a grammar, to some 100 MB.
_MAX_LEXER_STATES = 50_000


class GrammarCompiler:
    """Compiles one grammar after the other beside the engine's thread, and remembers the latest.

    `load_vocabulary` is called once, in that thread, when there is something to compile.
    """

    def __init__(self, load_vocabulary: Callable[[], Vocabulary]) -> None:
        self._load_vocabulary = load_vocabulary
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        self._cache: OrderedDict[Grammar, Future[CompiledGrammar]] = OrderedDict()
        self._num_characters = 0

    def compile(self, grammar: Grammar) -> Future[CompiledGrammar]:
        """The grammar, ready or on its way; the future raises InvalidRequest."""
        found = self._cache.pop(grammar, None)
        if found is not None:
            self._num_characters -= len(grammar.text)
        if found is None or _is_spent(found):
            found = self._pool.submit(lambda: compile_grammar(self._tokenizer, grammar))
        self._cache[grammar] = found
        self._num_characters += len(grammar.text)
        while self._num_characters > _MAX_CACHED_CHARACTERS or len(self._cache) > _MAX_CACHED_GRAMMARS:
            oldest, _ = self._cache.popitem(last=False)
            self._num_characters -= len(oldest.text)
        return found

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return self._load_vocabulary().prepare()


def _is_spent(future: Future[CompiledGrammar]) -> bool:
    return future.done() and future.exception() is None and future.result().is_spent


def compile_grammar(tokenizer: LLTokenizer, grammar: Grammar) -> CompiledGrammar:
    """Compile, in up to a second or so. Raises InvalidRequest where no output can be guaranteed."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
    automaton = LLMatcher(tokenizer, source_of(grammar), log_level=0, limits=limits)
    if automaton.is_error():
        raise invalid_grammar(problem_of(automaton))
    beginning = automaton.deep_copy()
    beginning.compute_bitmask()
    if beginning.is_error() or (beginning.is_stopped() and not beginning.is_accepting()):
        raise invalid_grammar("no text fits it")
    return CompiledGrammar(automaton)
