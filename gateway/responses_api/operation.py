"""ResponseOperation: a request for a response, served as the chat that it comes to."""

from __future__ import annotations

import dataclasses
import time
import uuid

import msgspec

from gateway.chat import ChatOperation
from gateway.errors import ApiError, in_other_words, invalid
from gateway.generation import GenerationPlan
from gateway.logprobs import LogprobWriter
from gateway.protocol.chat import ChatRequest
from gateway.protocol.responses import InputItem, Response, ResponseRequest
from gateway.responses_api.items import given_items
from gateway.responses_api.store import Kept, ResponseStore
from gateway.responses_api.translate import NAMES, chat_request
from gateway.responses_api.writer import ResponseWriter
from gateway.served_model import Serving
from gateway.state import Gateway

_items = msgspec.json.Decoder(list[InputItem])


class _Said(msgspec.Struct):
    status: str
    output: list[InputItem]


_said = msgspec.json.Decoder(_Said)


class ResponseOperation:
    """One request to `/v1/responses`. Decodes and translates on construction, which may take long."""

    name = "chat"

    def __init__(self, request: ResponseRequest, previous: Kept | None, store: ResponseStore, owner: str) -> None:
        self.id = f"resp_{uuid.uuid4().hex}"
        self.items = [*_earlier_items(previous), *given_items(request.input)]
        self.stored = request.store is not False
        self._request = request
        self._store = store
        self._owner = owner
        self._chat = ChatOperation(chat_request(request, self.items))

    @property
    def fields(self) -> ChatRequest:
        """The chat request; its stream is the response's."""
        return self._chat.fields

    @property
    def max_tokens(self) -> int | None:
        """The caller's bound on new tokens."""
        return self._request.max_output_tokens

    def plan(self, serving: Serving) -> GenerationPlan:
        """Check and render; see Operation."""
        try:
            plan = self._chat.plan(serving)
        except ApiError as error:
            raise in_other_words(error, NAMES) from None
        return dataclasses.replace(plan, id=self.id, grammar_field=NAMES.get(plan.grammar_field, plan.grammar_field))

    def writer(self, plan: GenerationPlan, serving: Serving) -> ResponseWriter:
        """A writer for the response."""
        logprobs = None
        if self.fields.logprobs:
            hidden = plan.skip_special_tokens
            logprobs = LogprobWriter(serving.text_model, self.fields.top_logprobs or 0, skip_special_tokens=hidden)
        response = _asked(self._request, self.id, plan.model)
        return ResponseWriter(response, logprobs, self.keep if self.stored else None)

    async def keep(self, response: Response) -> bool:
        """Keep the response as it is; see ResponseStore."""
        return await self._store.keep(self._owner, response, self.items)


async def response_operation(
    gateway: Gateway, store: ResponseStore, fields: ResponseRequest, owner: str
) -> ResponseOperation:
    """The operation of a decoded request, with what the owner's earlier responses said; raises a 400 where it can't."""
    previous = None
    if fields.previous_response_id is not None:
        previous = await store.find(owner, fields.previous_response_id)
        if previous is None:
            message = f"Previous response with id '{fields.previous_response_id[:100]}' not found."
            raise invalid(message, param="previous_response_id", code="previous_response_not_found")
    return await gateway.workers.run(lambda: ResponseOperation(fields, previous, store, owner))


def _earlier_items(previous: Kept | None) -> list[InputItem]:
    """What a response answered, and what it said."""
    if previous is None:
        return []
    said = _said.decode(previous.response)
    if said.status not in {"completed", "incomplete"}:
        raise invalid(
            f"The previous response is {said.status.replace('_', ' ')}; only a finished one can be gone on from.",
            param="previous_response_id",
        )
    return [*_items.decode(previous.items), *said.output]


def _asked(request: ResponseRequest, response_id: str, model: str) -> Response:
    """A response that says what was asked for, and nothing else yet."""
    reasoning, text = request.reasoning, request.text
    return Response(
        id=response_id,
        created_at=int(time.time()),
        background=bool(request.background),
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        model=model,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning={
            "effort": reasoning.effort if reasoning else None,
            "summary": reasoning.summary if reasoning else None,
        },
        safety_identifier=request.safety_identifier,
        store=request.store is not False,
        temperature=1.0 if request.temperature is None else request.temperature,
        text={
            "format": (text.format if text else None) or {"type": "text"},
            "verbosity": (text.verbosity if text else None) or "medium",
        },
        tool_choice=request.tool_choice or "auto",
        tools=request.tools or [],
        top_logprobs=request.top_logprobs or 0,
        top_p=1.0 if request.top_p is None else request.top_p,
        truncation=request.truncation or "disabled",
        user=request.user,
    )
