"""How an answer to a chat is read: reasoning first, then text and calls of tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from core_engine import Grammar
from core_engine.text import TextModel
from gateway.deltas import AnswerDelta, joined
from gateway.deployment import Parsers
from gateway.reader import PlainReader, Reader
from gateway.tools import thoughts
from gateway.tools.choice import ToolUse
from gateway.tools.forced import forced_grammar
from gateway.tools.formats import FORCED, FORMATS, NOT_HELD, ToolFormat, detected_format
from gateway.tools.held import Thinking, held_grammar
from gateway.tools.source import Source, Steps


class SteppedReader:
    """A Reader whose decisions are a generator's, taken as far as the text goes."""

    def __init__(self, source: Source, steps: Steps[None]) -> None:
        self._source = source
        self._steps = steps

    @property
    def num_held(self) -> int:
        """See Reader."""
        return self._source.num_held

    @property
    def satisfied(self) -> bool:
        """See Reader."""
        return self._source.satisfied

    def push(self, text: str) -> list[AnswerDelta]:
        """See Reader."""
        self._source.feed(text)
        return self._go_on()

    def end(self) -> list[AnswerDelta]:
        """See Reader."""
        self._source.complete = True
        return self._go_on()

    def _go_on(self) -> list[AnswerDelta]:
        next(self._steps, None)
        deltas, self._source.deltas = self._source.deltas, []
        return joined(deltas)


@dataclass(frozen=True, slots=True)
class Reading:
    """How each choice of a request is read; `shown_token_ids` are special tokens that must be text for that.

    `grammar` is that of all that the model may write, so that it can be read; None where anything may come.
    """

    grammar: Grammar | None = None
    new_reader: Callable[[], Reader] = PlainReader
    shown_token_ids: frozenset[int] = frozenset()


def reading(
    text_model: TextModel, parsers: Parsers, use: ToolUse | None, prompt_token_ids: list[int], answer: Grammar | None
) -> Reading:
    """How the answers to a prompt are read, and held to what is asked for: `answer`, and the schemas of tools.

    A forced call is all of its answer, so that no reasoning comes before it; nor does it where a client's own grammar
    in Lark is all. Raises InvalidRequest where a schema or `answer` can't be followed.
    """
    is_forced = use is not None and use.mode != "auto"
    is_own = answer is not None and answer.kind == "lark"
    thinks = _thinks(text_model, parsers) and not is_forced and not is_own
    is_thinking = thinks and thoughts.is_opened(text_model, prompt_token_ids)
    tool_format = None if use is None else _tool_format(text_model, parsers, use, is_held=answer is not None)
    if use is not None and is_forced:
        grammar: Grammar | None = forced_grammar(use)
    else:
        calls = None if use is None or tool_format is None else (use, tool_format.syntax)
        thinking: Thinking = "begun" if is_thinking else "maybe" if thinks else "never"
        grammar = held_grammar(text_model, answer, calls, thinking)
    if tool_format is None and not thinks:
        return Reading(grammar)

    def new_reader() -> Reader:
        source = Source(
            use.names if use else (),
            one_call=use is not None and use.one_call,
            new_id=tool_format.new_id if tool_format else str,
        )
        return SteppedReader(source, steps(source))

    def steps(source: Source) -> Steps[None]:
        if thinks:
            yield from thoughts.thoughts(source, opened=is_thinking)
        yield from tool_format.read(source) if tool_format else source.rest_as_text()

    marks = (*(tool_format.marks if tool_format else ()), *(thoughts.MARKS if thinks else ()))
    return Reading(grammar, new_reader, text_model.token_ids_of(marks))


def _tool_format(text_model: TextModel, parsers: Parsers, use: ToolUse, *, is_held: bool) -> ToolFormat | None:
    name = detected_format(text_model) if parsers.tool_parser == "auto" else parsers.tool_parser
    tool_format = FORMATS.get(name)
    if use.mode == "auto" and not (name in NOT_HELD and (is_held or use.is_strict)):
        return tool_format
    other = FORCED if use.mode == "named" else FORMATS["json"]
    return replace(other, new_id=tool_format.new_id) if tool_format else other


def _thinks(text_model: TextModel, parsers: Parsers) -> bool:
    if parsers.reasoning_parser != "auto":
        return parsers.reasoning_parser == "think"
    return any(map(text_model.template_says, thoughts.MARKS))
