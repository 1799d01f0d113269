"""The events of a streamed message, as clients see them."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.protocol.messages import Message, MessageUsage, OutputBlock, StopReason

EventType = Literal[
    "message_start",
    "ping",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]
DeltaType = Literal["text_delta", "thinking_delta", "input_json_delta"]


class MessageEventDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What an event adds to a block, or in the end to the message."""

    type: DeltaType | UnsetType = UNSET
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    partial_json: str | UnsetType = UNSET
    stop_reason: StopReason | UnsetType = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event; which of the other fields it has depends on its type."""

    type: EventType
    message: Message | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: OutputBlock | UnsetType = UNSET
    delta: MessageEventDelta | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET
