"""MessageOperation: a request for a message, served as the chat that it comes to."""

from __future__ import annotations

import dataclasses
import uuid

from gateway.chat import ChatOperation
from gateway.errors import ApiError, in_other_words
from gateway.generation import GenerationPlan
from gateway.messages_api.translate import NAMES, chat_request, conversation
from gateway.messages_api.writer import MessageWriter
from gateway.prompts import chat_tokens
from gateway.protocol.chat import ChatRequest
from gateway.protocol.messages import Conversation, MessageRequest
from gateway.served_model import Serving
from gateway.tools.choice import tool_use


class MessageOperation:
    """One request to `/v1/messages`. Translates on construction, which may take long."""

    name = "chat"

    def __init__(self, request: MessageRequest, request_id: str) -> None:
        self._request_id = request_id
        self._chat = ChatOperation(chat_request(request))

    @property
    def fields(self) -> ChatRequest:
        """The chat request."""
        return self._chat.fields

    @property
    def max_tokens(self) -> int | None:
        """The caller's bound on new tokens."""
        return self._chat.max_tokens

    def plan(self, serving: Serving) -> GenerationPlan:
        """Check and render; see Operation."""
        try:
            plan = self._chat.plan(serving)
        except ApiError as error:
            raise in_other_words(error, NAMES) from None
        field = NAMES.get(plan.grammar_field, plan.grammar_field)
        return dataclasses.replace(plan, id=f"msg_{uuid.uuid4().hex}", grammar_field=field)

    def writer(self, plan: GenerationPlan, serving: Serving) -> MessageWriter:
        """A writer for the message."""
        return MessageWriter(plan, self._request_id)


def count_tokens(fields: Conversation, serving: Serving) -> int:
    """The length of the prompt that a message would have, be it too long or not; raises a 400 where it can't be."""
    chat = conversation(fields)
    try:
        return len(chat_tokens(chat, tool_use(chat), serving.text_model))
    except ApiError as error:
        raise in_other_words(error, NAMES) from None
