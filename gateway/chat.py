"""Chat completions: what a request asks for, and how its answer is written."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from gateway.choice import Piece, join_pieces
from gateway.errors import invalid
from gateway.generation import GenerationPlan
from gateway.logprobs import LogprobWriter
from gateway.operation import new_id, wants_usage
from gateway.prompts import chat_prompt
from gateway.protocol.chat import (
    AnswerMessage,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Choice,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
)
from gateway.protocol.usage import Usage
from gateway.sampling import sampling_params
from gateway.state import Serving
from gateway.unsupported import refuse_unsupported_chat


class ChatOperation:
    """One request to `/v1/chat/completions`."""

    name = "chat"

    def __init__(self, fields: ChatRequest) -> None:
        self.fields = fields

    @property
    def max_tokens(self) -> int | None:
        """The caller's bound on new tokens."""
        return self.fields.output_limit[0]

    def plan(self, serving: Serving) -> GenerationPlan:
        """Check and render; see Operation."""
        fields = self.fields
        refuse_unsupported_chat(fields)
        if fields.top_logprobs is not None and not fields.logprobs:
            raise invalid("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")
        sampling = sampling_params(
            fields,
            serving.text_model,
            serving.info,
            output_limit=fields.output_limit,
            logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        )
        return GenerationPlan(
            id=new_id("chatcmpl"),
            model=serving.info.model,
            prompts=[chat_prompt(fields, serving)],
            sampling=sampling,
            num_samples=fields.n or 1,
            stops=fields.stops,
            skip_special_tokens=fields.skip_special_tokens is not False,
            priority=fields.priority,
            cache_salt=fields.cache_salt or "",
        )

    def writer(self, plan: GenerationPlan, serving: Serving) -> ChatWriter:
        """A writer for the answer."""
        return ChatWriter(self.fields, plan, serving)


class ChatWriter:
    """Writes one answer; see Writer."""

    def __init__(self, fields: ChatRequest, plan: GenerationPlan, serving: Serving) -> None:
        self._plan = plan
        self._created = int(time.time())
        self._usage: UnsetType | None = None if wants_usage(fields) else UNSET
        self._with_token_ids = bool(fields.return_token_ids)
        self._logprobs = (
            LogprobWriter(serving.text_model, fields.top_logprobs or 0, skip_special_tokens=plan.skip_special_tokens)
            if fields.logprobs
            else None
        )
        self._begun: set[int] = set()

    def chunks(self, piece: Piece) -> Iterator[bytes]:
        """The role before the first piece of a choice, its text, and the reason by itself in the end."""
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            yield self._chunk(ChunkChoice(index=piece.index, delta=Delta(role="assistant", content="")), first=True)
        for part in piece.parts():
            yield self._chunk(
                ChunkChoice(
                    index=part.index,
                    delta=Delta() if part.finish_reason else Delta(content=part.text),
                    logprobs=self._choice_logprobs(part) if part.entries else None,
                    finish_reason=part.finish_reason,
                    token_ids=self._token_ids(part),
                )
            )

    def usage_chunk(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        return msgspec.json.encode(
            ChatChunk(id=self._plan.id, created=self._created, model=self._plan.model, choices=[], usage=usage)
        )

    def answer(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer."""
        choices = [self._choice(whole) for _, whole in sorted(join_pieces(pieces).items())]
        return msgspec.json.encode(
            ChatCompletion(
                id=self._plan.id,
                created=self._created,
                model=self._plan.model,
                choices=choices,
                usage=usage,
                prompt_token_ids=self._prompt_token_ids(),
            )
        )

    def _choice(self, whole: Piece) -> Choice:
        assert whole.finish_reason is not None
        return Choice(
            index=whole.index,
            message=AnswerMessage(content=whole.text),
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
