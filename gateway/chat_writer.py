"""ChatWriter: the answer of a chat completion, whole or in chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from gateway.choice import Piece, join_pieces
from gateway.deltas import AnswerDelta, ArgumentsDelta, CallStart, ReasoningDelta, TextDelta, said
from gateway.generation import GenerationPlan
from gateway.logprobs import LogprobWriter, prompt_logprobs
from gateway.operation import ChunkWriter
from gateway.protocol.chat import (
    AnswerMessage,
    CallDelta,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Choice,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
    Function,
    FunctionDelta,
    ToolCall,
)
from gateway.protocol.fields import PromptTokenLogprobs
from gateway.protocol.usage import Usage
from gateway.served_model import Serving


class ChatWriter(ChunkWriter):
    """Writes one answer; see Writer."""

    def __init__(self, fields: ChatRequest, plan: GenerationPlan, serving: Serving) -> None:
        super().__init__(plan, fields)
        self._created = int(time.time())
        self._usage: UnsetType | None = None if self._with_usage else UNSET
        self._logprobs = (
            LogprobWriter(serving.text_model, fields.top_logprobs or 0, skip_special_tokens=plan.skip_special_tokens)
            if fields.logprobs
            else None
        )
        self._text_model = serving.text_model
        self._num_prompt_rivals = fields.prompt_logprobs
        self._begun: set[int] = set()

    def chunks(self, piece: Piece) -> Iterator[bytes]:
        """The role before the first piece of a choice, each of its deltas, and the reason by itself in the end."""
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            yield self._chunk(ChunkChoice(index=piece.index, delta=Delta(role="assistant", content="")), first=True)
        for part in piece.parts():
            yield self._chunk(
                ChunkChoice(
                    index=part.index,
                    delta=Delta() if part.finish_reason else _delta(part.deltas),
                    logprobs=self._choice_logprobs(part) if part.entries else None,
                    finish_reason=part.finish_reason,
                    token_ids=self._token_ids(part),
                )
            )

    def text_chunk(self, index: int, text: str) -> bytes:
        """The text alone."""
        return self._chunk(ChunkChoice(index=index, delta=Delta(content=text)))

    def usage_chunk(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        return msgspec.json.encode(
            ChatChunk(id=self._plan.id, created=self._created, model=self._plan.model, choices=[], usage=usage)
        )

    def whole(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer."""
        samples = join_pieces(pieces)
        choices = [self._choice(whole) for _, whole in sorted(samples.items())]
        told: PromptTokenLogprobs | UnsetType = UNSET
        if self._num_prompt_rivals is not None:
            scores = samples[0].prompt_logprobs
            told = prompt_logprobs(self._text_model, self._plan.prompts[0], scores, self._num_prompt_rivals)
        return msgspec.json.encode(
            ChatCompletion(
                id=self._plan.id,
                created=self._created,
                model=self._plan.model,
                choices=choices,
                usage=usage,
                prompt_token_ids=self._prompt_token_ids(),
                prompt_logprobs=told,
            )
        )

    def _choice(self, whole: Piece) -> Choice:
        assert whole.finish_reason is not None
        return Choice(
            index=whole.index,
            message=_message(whole.deltas),
            finish_reason=whole.finish_reason,
            logprobs=self._choice_logprobs(whole),
            token_ids=self._token_ids(whole),
        )

    def _chunk(self, choice: ChunkChoice, *, first: bool = False) -> bytes:
        return msgspec.json.encode(
            ChatChunk(
                id=self._plan.id,
                created=self._created,
                model=self._plan.model,
                choices=[choice],
                usage=self._usage,
                prompt_token_ids=self._prompt_token_ids() if first else UNSET,
            )
        )

    def _choice_logprobs(self, piece: Piece) -> ChoiceLogprobs | None:
        return None if self._logprobs is None else self._logprobs.chat(piece.entries)

    def _token_ids(self, piece: Piece) -> list[int] | UnsetType:
        return piece.token_ids if self._with_token_ids else UNSET

    def _prompt_token_ids(self) -> list[int] | UnsetType:
        return self._plan.prompts[0] if self._with_token_ids else UNSET


def _delta(deltas: list[AnswerDelta]) -> Delta:
    """One delta as a chunk has it; none at all is text of no length, which carries log-probabilities."""
    match deltas:
        case [ReasoningDelta(text)]:
            return Delta(reasoning_content=text)
        case [CallStart(index, id, name)]:
            start = FunctionDelta(name=name, arguments="")
            return Delta(tool_calls=[CallDelta(index=index, id=id, type="function", function=start)])
        case [ArgumentsDelta(index, text)]:
            return Delta(tool_calls=[CallDelta(index=index, function=FunctionDelta(arguments=text))])
        case [TextDelta(text)]:
            return Delta(content=text)
    return Delta(content="")


def _message(deltas: list[AnswerDelta]) -> AnswerMessage:
    whole = said(deltas)
    calls = [ToolCall(id=call.id, function=Function(name=call.name, arguments=call.arguments)) for call in whole.calls]
    return AnswerMessage(
        content=whole.text or (None if calls or whole.reasoning else ""),
        reasoning_content=whole.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
