"""`<think>...</think>` before an answer: what reasoning models think first."""

from __future__ import annotations

from core_engine.text import TextModel
from gateway.tools.source import Source, Steps

START, END = MARKS = ("<think>", "</think>")
_TAIL_TOKENS = 16  # of a prompt; more than the mark and white space after it take


def thoughts(source: Source, *, opened: bool) -> Steps[None]:
    """Read the reasoning, if there is any; `opened` where the prompt has begun it already."""
    yield from source.blank()
    if not (yield from source.take(START)) and not opened:
        return
    yield from source.blank()
    source.drop()
    if (yield from source.reasoning_until(END)):
        yield from source.blank()
        source.drop()


def is_opened(text_model: TextModel, prompt_token_ids: list[int]) -> bool:
    """Whether a prompt ends by opening the reasoning, as some templates do."""
    tail = text_model.decode(prompt_token_ids[-_TAIL_TOKENS:], skip_special_tokens=False)
    return tail.rstrip().endswith(START)
