"""How an answer to a chat is read: reasoning first, then text and calls of tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from core_engine.text import TextModel
from gateway.deltas import AnswerDelta, joined
from gateway.deployment import Parsers
from gateway.reader import PlainReader, Reader
from gateway.tools import thoughts
from gateway.tools.choice import ToolUse
from gateway.tools.formats import FORCED, FORMATS, ToolFormat, detected_format
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
    """How each choice of a request is read; `shown_token_ids` are special tokens that must be text for that."""

    new_reader: Callable[[], Reader] = PlainReader
    shown_token_ids: frozenset[int] = frozenset()


def reading(text_model: TextModel, parsers: Parsers, use: ToolUse | None, prompt_token_ids: list[int]) -> Reading:
    """How the answers to a prompt are read.

    A forced call is all of its answer, so that no reasoning comes before it.
    """
    tool_format = None if use is None else _tool_format(text_model, parsers, use)
    thinks = _thinks(text_model, parsers) and (use is None or use.mode == "auto")
    if tool_format is None and not thinks:
        return Reading()
    is_thinking = thinks and thoughts.is_opened(text_model, prompt_token_ids)

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
    return Reading(new_reader, text_model.token_ids_of(marks))


def _tool_format(text_model: TextModel, parsers: Parsers, use: ToolUse) -> ToolFormat | None:
    name = parsers.tool_parser
    tool_format = FORMATS.get(detected_format(text_model) if name == "auto" else name)
    if use.mode == "auto":
        return tool_format
    forced_format = FORCED if use.mode == "named" else FORMATS["json"]
    return replace(forced_format, new_id=tool_format.new_id) if tool_format else forced_format


def _thinks(text_model: TextModel, parsers: Parsers) -> bool:
    if parsers.reasoning_parser != "auto":
        return parsers.reasoning_parser == "think"
    return any(map(text_model.template_says, thoughts.MARKS))
