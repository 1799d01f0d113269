"""MessageWriter: a message as JSON, or as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gateway.body import check_depth
from gateway.choice import Piece, join_pieces
from gateway.deltas import AnswerDelta, ArgumentsDelta, CallStart, ReasoningDelta, TextDelta, joined
from gateway.errors import ApiError
from gateway.generation import GenerationPlan
from gateway.messages import MAX_ARGUMENTS_DEPTH
from gateway.messages_api.envelope import messages_error
from gateway.protocol.messages import (
    Message,
    MessageUsage,
    OutputBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from gateway.protocol.usage import Usage
from gateway.stream import named_frame

# The key under which Anthropic's documentation has clients wrap what a model wrote instead of an object.
INVALID_JSON = "INVALID_JSON"

_json = msgspec.json.Decoder()


class MessageWriter:
    """Writes one message; see Writer. Each run of text, of reasoning, and each call is a block of its content."""

    def __init__(self, plan: GenerationPlan, request_id: str) -> None:
        self._plan = plan
        self._request_id = request_id
        self._open: OutputBlock | None = None
        self._index = 0  # of the open block, or of the next one
        self._stop: tuple[StopReason, str | None] = ("end_turn", None)

    @property
    def heartbeat(self) -> bytes:
        """A ping."""
        return _event("ping")

    def opening(self) -> bytes:
        """The message without content; how much of its prompt is cached is told in the end."""
        usage = Usage.of(self._plan.num_prompt_tokens, 0, 0)
        return _event("message_start", message=self._message([], usage)) + self.heartbeat

    def frames(self, piece: Piece) -> bytes:
        """What the piece adds."""
        if piece.finish_reason is not None:
            self._stop = _stop_of(piece)
        return b"".join(frame for delta in piece.deltas for frame in self._take(delta))

    async def closing(self, usage: Usage) -> bytes:
        """The end of what is open, and of the message."""
        reason, sequence = self._stop
        ended = _event(
            "message_delta", delta={"stop_reason": reason, "stop_sequence": sequence}, usage=_message_usage(usage)
        )
        return b"".join(self._close()) + ended + _event("message_stop")

    def failure(self, error: ApiError) -> bytes:
        """The error; what is open stays so."""
        return named_frame("error", messages_error(error, self._request_id))

    async def answer(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole message."""
        whole = join_pieces(pieces)[0]
        reason, sequence = _stop_of(whole)
        message = self._message(_blocks(whole.deltas), usage)
        return msgspec.json.encode(msgspec.structs.replace(message, stop_reason=reason, stop_sequence=sequence))

    def _message(self, content: list[OutputBlock], usage: Usage) -> Message:
        return Message(id=self._plan.id, model=self._plan.model, content=content, usage=_message_usage(usage))

    def _take(self, delta: AnswerDelta) -> Iterator[bytes]:
        match delta:
            case TextDelta(text):
                if not isinstance(self._open, TextBlock):
                    yield from self._begin(TextBlock())
                yield self._delta("text_delta", text=text)
            case ReasoningDelta(text):
                if not isinstance(self._open, ThinkingBlock):
                    yield from self._begin(ThinkingBlock())
                yield self._delta("thinking_delta", thinking=text)
            case CallStart(_, call_id, name):
                yield from self._begin(ToolUseBlock(call_id, name, {}))
            case ArgumentsDelta(_, text):
                yield self._delta("input_json_delta", partial_json=text)

    def _begin(self, block: OutputBlock) -> Iterator[bytes]:
        yield from self._close()
        self._open = block
        yield _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})

    def _close(self) -> Iterator[bytes]:
        if self._open is not None:
            yield _event("content_block_stop", index=self._index)
            self._open = None
            self._index += 1


def _event(kind: str, /, **fields: Any) -> bytes:
    return named_frame(kind, msgspec.json.encode({"type": kind, **fields}))


def _blocks(deltas: Iterable[AnswerDelta]) -> list[OutputBlock]:
    """The content of a whole message."""
    blocks: list[OutputBlock] = []
    for delta in joined(deltas):
        match delta:
            case TextDelta(text):
                blocks.append(TextBlock(text))
            case ReasoningDelta(text):
                blocks.append(ThinkingBlock(text))
            case CallStart(_, call_id, name):
                blocks.append(ToolUseBlock(call_id, name, {}))
            case ArgumentsDelta(_, text):
                call = blocks[-1]
                assert isinstance(call, ToolUseBlock)
                call.input = _input(text)
    return blocks


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as the object that they have to be; as they are, under a key, where they aren't one."""
    try:
        check_depth(arguments.encode(), MAX_ARGUMENTS_DEPTH)
        decoded = _json.decode(arguments)
    except (ApiError, msgspec.DecodeError):
        decoded = None
    return decoded if isinstance(decoded, dict) else {INVALID_JSON: arguments}


def _stop_of(piece: Piece) -> tuple[StopReason, str | None]:
    """Why a message ends with this piece, and the stop sequence that ended it."""
    if piece.finish_reason == "tool_calls":
        return "tool_use", None
    if piece.finish_reason == "length":
        return "max_tokens", None
    return ("end_turn" if piece.stop_string is None else "stop_sequence"), piece.stop_string


def _message_usage(usage: Usage) -> MessageUsage:
    cached_tokens = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached_tokens,
        cache_read_input_tokens=cached_tokens,
        output_tokens=usage.completion_tokens,
    )
