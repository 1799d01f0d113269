"""`/v1/responses`."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.openapi.endpoints.generation import CREATED, MODEL
from gateway.protocol.response_events import ResponseEvent
from gateway.protocol.responses import (
    Deleted,
    InputDetails,
    InputItem,
    ItemList,
    OutputDetails,
    OutputMessage,
    OutputText,
    Response,
    ResponseRequest,
    ResponseUsage,
)
from gateway.routes.responses import PageOptions
from gateway.stream import named_frame

_FAMILY = "Responses"
_RESPONSE = Content(
    Response,
    Response(
        id="resp_1",
        created_at=CREATED,
        status="completed",
        completed_at=CREATED + 1,
        model=MODEL,
        output=[OutputMessage(id="msg_1", status="completed", content=[OutputText(text="Paris.")])],
        store=True,
        temperature=0,
        text={"format": {"type": "text"}},
        top_p=1,
        usage=ResponseUsage(
            input_tokens=37,
            input_tokens_details=InputDetails(32),
            output_tokens=3,
            output_tokens_details=OutputDetails(0),
            total_tokens=40,
        ),
    ),
)
_EVENT = ResponseEvent(
    type="response.output_text.delta",
    sequence_number=4,
    item_id="msg_1",
    output_index=0,
    content_index=0,
    delta="Paris.",
    logprobs=[],
)
_STREAM = named_frame(_EVENT.type, msgspec.json.encode(_EVENT)).decode()


class RetrieveOptions(msgspec.Struct, frozen=True):
    """The query of a retrieval: a kept response can't be streamed."""

    stream: Literal["false"] = "false"


RESPONSES = (
    Endpoint(
        method="post",
        path="/v1/responses",
        also_at="/responses",
        name="create_response",
        family=_FAMILY,
        summary="Answer an input, and keep the answer",
        description="With `stream` the answer is server-sent events, each with its name and one line of data; the last "
        "is `response.completed`, `response.incomplete` or `response.failed`. Comments keep the connection alive.",
        request=Content(
            ResponseRequest,
            {"model": MODEL, "input": "What is the capital of France?", "temperature": 0, "max_output_tokens": 32},
        ),
        answers={
            200: Answer(
                "The response, whole or streamed",
                _RESPONSE,
                Content(str, _STREAM, "text/event-stream", events=ResponseEvent),
            )
        },
        errors=(404, 429, 503),
    ),
    Endpoint(
        method="get",
        path="/v1/responses/{response_id}",
        also_at="/responses/{response_id}",
        name="retrieve_response",
        family=_FAMILY,
        summary="Read a kept response",
        query=RetrieveOptions,
        answers={200: Answer("The response as it is", _RESPONSE)},
        errors=(404,),
    ),
    Endpoint(
        method="delete",
        path="/v1/responses/{response_id}",
        also_at="/responses/{response_id}",
        name="delete_response",
        family=_FAMILY,
        summary="Delete a kept response",
        answers={200: Answer("It is gone", Content(Deleted, Deleted("resp_1")))},
        errors=(404,),
    ),
    Endpoint(
        method="post",
        path="/v1/responses/{response_id}/cancel",
        also_at="/responses/{response_id}/cancel",
        name="cancel_response",
        family=_FAMILY,
        summary="Cancel a response that runs in the background",
        answers={200: Answer("The response as it is now", _RESPONSE)},
        errors=(404,),
    ),
    Endpoint(
        method="get",
        path="/v1/responses/{response_id}/input_items",
        also_at="/responses/{response_id}/input_items",
        name="list_input_items",
        family=_FAMILY,
        summary="List what a response was given",
        query=PageOptions,
        answers={
            200: Answer(
                "A page of items",
                Content(
                    ItemList,
                    ItemList(
                        data=[
                            InputItem(id="msg_0", type="message", role="user", content="What is the capital of France?")
                        ],
                        first_id="msg_0",
                        last_id="msg_0",
                        has_more=False,
                    ),
                ),
            )
        },
        errors=(404,),
    ),
)
