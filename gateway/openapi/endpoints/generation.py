"""`/v1/chat/completions`, `/v1/completions` and `/v1/embeddings`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.protocol.chat import (
    AnswerMessage,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Choice,
    ChunkChoice,
    Delta,
    FinishReason,
)
from gateway.protocol.completions import Completion, CompletionChoice, CompletionRequest
from gateway.protocol.embeddings import Embedding, EmbeddingAnswer, EmbeddingRequest, EmbeddingUsage
from gateway.protocol.usage import Usage
from gateway.stream import DONE, frame

CREATED = 1_760_000_000
MODEL = "smollm2"
_ERRORS = (404, 429, 503)


def _chunk(delta: Delta, finish_reason: FinishReason | None = None) -> ChatChunk:
    choice = ChunkChoice(index=0, delta=delta, finish_reason=finish_reason)
    return ChatChunk(id="chatcmpl-1", created=CREATED, model=MODEL, choices=[choice])


def _stream(*events: msgspec.Struct) -> str:
    return (b"".join(frame(msgspec.json.encode(event)) for event in events) + DONE).decode()


_CHAT_STREAM = _stream(
    _chunk(Delta(role="assistant", content="")), _chunk(Delta(content="Paris.")), _chunk(Delta(), "stop")
)
_COMPLETION = Completion(
    id="cmpl-1",
    created=CREATED,
    model=MODEL,
    choices=[CompletionChoice(index=0, text=" Paris.", finish_reason="length")],
    usage=Usage.of(5, 2, 0),
)
_TEXT_STREAM = _stream(msgspec.structs.replace(_COMPLETION, usage=UNSET))
_STREAMED = (
    "With `stream` the answer is server-sent events: each has one line of data, the last is `[DONE]`. Comments keep "
    "the connection alive. What fails before the first event is an answer with its status; later, the envelope of the "
    "error is the data of the last event."
)

GENERATION = (
    Endpoint(
        method="post",
        path="/v1/chat/completions",
        also_at="/chat/completions",
        name="create_chat_completion",
        family="Generation",
        summary="Answer a conversation",
        description=_STREAMED,
        request=Content(
            ChatRequest,
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": "What is the capital of France?"}],
                "temperature": 0,
                "max_completion_tokens": 32,
            },
        ),
        answers={
            200: Answer(
                "The answer, whole or streamed",
                Content(
                    ChatCompletion,
                    ChatCompletion(
                        id="chatcmpl-1",
                        created=CREATED,
                        model=MODEL,
                        choices=[Choice(index=0, message=AnswerMessage(content="Paris."), finish_reason="stop")],
                        usage=Usage.of(37, 3, 32),
                    ),
                ),
                Content(str, _CHAT_STREAM, "text/event-stream", events=ChatChunk),
            )
        },
        errors=_ERRORS,
    ),
    Endpoint(
        method="post",
        path="/v1/completions",
        also_at="/completions",
        name="create_completion",
        family="Generation",
        summary="Continue texts",
        description=_STREAMED,
        request=Content(
            CompletionRequest,
            {"model": MODEL, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 2},
        ),
        answers={
            200: Answer(
                "The continuations, whole or streamed",
                Content(
                    Completion,
                    _COMPLETION,
                ),
                Content(str, _TEXT_STREAM, "text/event-stream", events=Completion),
            )
        },
        errors=_ERRORS,
    ),
    Endpoint(
        method="post",
        path="/v1/embeddings",
        also_at="/embeddings",
        name="create_embeddings",
        family="Generation",
        summary="Turn texts into vectors",
        description="The model must be one that was loaded for embeddings.",
        request=Content(EmbeddingRequest, {"model": "minilm", "input": ["a small bus", "a large bus"]}),
        answers={
            200: Answer(
                "A vector for each text",
                Content(
                    EmbeddingAnswer,
                    EmbeddingAnswer(
                        data=[
                            Embedding(index=0, embedding=[0.6, 0.8, 0.0]),
                            Embedding(index=1, embedding=[0.8, 0.6, 0.0]),
                        ],
                        model="minilm",
                        usage=EmbeddingUsage(prompt_tokens=10, total_tokens=10),
                    ),
                ),
            )
        },
        errors=_ERRORS,
    ),
)
