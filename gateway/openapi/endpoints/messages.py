"""`/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import msgspec

from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.openapi.endpoints.generation import MODEL
from gateway.protocol.message_events import MessageEvent, MessageEventDelta
from gateway.protocol.messages import Conversation, Message, MessageRequest, MessageUsage, TextBlock, TokenCount
from gateway.stream import named_frame

_FAMILY = "Messages"
_ERRORS = (404, 429, 529)
_ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
_EVENT = MessageEvent(type="content_block_delta", index=0, delta=MessageEventDelta(type="text_delta", text="Paris."))

MESSAGES = (
    Endpoint(
        method="post",
        path="/v1/messages",
        also_at="/messages",
        name="create_message",
        family=_FAMILY,
        summary="Answer a conversation in Anthropic's form",
        description="With `stream` the answer is server-sent events, each with its name and one line of data; the last "
        "is `message_stop`, or `error` with the envelope of the error.",
        request=Content(MessageRequest, {**_ASKED, "max_tokens": 32}),
        answers={
            200: Answer(
                "The message, whole or streamed",
                Content(
                    Message,
                    Message(
                        id="msg_1",
                        model=MODEL,
                        content=[TextBlock("Paris.")],
                        stop_reason="end_turn",
                        usage=MessageUsage(input_tokens=5, cache_read_input_tokens=32, output_tokens=3),
                    ),
                ),
                Content(
                    str,
                    named_frame(_EVENT.type, msgspec.json.encode(_EVENT)).decode(),
                    "text/event-stream",
                    events=MessageEvent,
                ),
            )
        },
        errors=_ERRORS,
    ),
    Endpoint(
        method="post",
        path="/v1/messages/count_tokens",
        also_at="/messages/count_tokens",
        name="count_message_tokens",
        family=_FAMILY,
        summary="Count the tokens of a conversation",
        request=Content(Conversation, _ASKED),
        answers={200: Answer("How many there are", Content(TokenCount, TokenCount(37)))},
        errors=_ERRORS,
    ),
)
