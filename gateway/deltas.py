"""What an answer gains, piece by piece: text, reasoning, calls of tools. Each endpoint renders these its own way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec


class TextDelta(msgspec.Struct, frozen=True):
    """More of what the assistant says."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of what it thinks first."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """A tool is called; the arguments follow. Calls of a choice are numbered from 0."""

    index: int
    id: str
    name: str


class ArgumentsDelta(msgspec.Struct, frozen=True):
    """More of the arguments of a call that has started, as the model writes them: JSON, if it does it well."""

    index: int
    text: str


AnswerDelta = TextDelta | ReasoningDelta | CallStart | ArgumentsDelta


@dataclass(slots=True)
class Call:
    """A whole call of a tool."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Said:
    """All deltas of a choice in one."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


def said(deltas: Iterable[AnswerDelta]) -> Said:
    """Put the deltas of a choice together."""
    whole = Said()
    for delta in joined(deltas):
        match delta:
            case TextDelta(text):
                whole.text += text
            case ReasoningDelta(text):
                whole.reasoning += text
            case CallStart(_, id, name):
                whole.calls.append(Call(id, name))
            case ArgumentsDelta(index, text):
                whole.calls[index].arguments += text
    return whole


def joined(deltas: Iterable[AnswerDelta]) -> list[AnswerDelta]:
    """The same with neighbours of a kind in one, and without empty ones."""
    some = [delta for delta in deltas if isinstance(delta, CallStart) or delta.text]
    if len(some) < 2:
        return some
    runs: list[tuple[AnswerDelta, list[str]]] = []
    for delta in some:
        if isinstance(delta, CallStart):
            runs.append((delta, []))
        elif runs and _goes_on(runs[-1][0], delta):
            runs[-1][1].append(delta.text)
        else:
            runs.append((delta, [delta.text]))
    return [
        delta if isinstance(delta, CallStart) else msgspec.structs.replace(delta, text="".join(texts))
        for delta, texts in runs
    ]


def _goes_on(delta: AnswerDelta, following: AnswerDelta) -> bool:
    if isinstance(delta, ArgumentsDelta) and isinstance(following, ArgumentsDelta):
        return delta.index == following.index
    return type(delta) is type(following) and not isinstance(delta, CallStart)
