"""Frames of which only the text is encoded anew say the same as those that are encoded whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine import TokenLogprobs
from gateway.chat import ChatOperation
from gateway.choice import Piece, TokenEntry
from gateway.completions import CompletionOperation
from gateway.deltas import ReasoningDelta, TextDelta
from gateway.protocol.chat import ChatMessage, ChatRequest
from gateway.protocol.completions import CompletionRequest
from gateway.protocol.fields import StreamOptions
from gateway.stream import frame
from gateway.text_frame import PLACEHOLDER, TextFrame
from tests.gateway.running import RunningGateway

SHARED: list[dict[str, Any]] = [
    {},
    {"stream_options": StreamOptions(include_usage=True)},
    {"return_token_ids": True},
    {"prompt_logprobs": 1},
]


@given(text=st.text())
def test_any_text_stands_where_it_belongs(text: str) -> None:
    sample = frame(json.dumps({"model": PLACEHOLDER, "text": PLACEHOLDER, "index": 0}).encode())
    filled = TextFrame(sample).fill(text)
    assert json.loads(filled.removeprefix(b"data: ")) == {"model": PLACEHOLDER, "text": text, "index": 0}


@pytest.mark.parametrize("options", [*SHARED, {"logprobs": True}])
def test_a_frame_of_a_chat_is_its_chunks(server: RunningGateway, options: dict[str, Any]) -> None:
    check(server, ChatOperation(ChatRequest(model="tiny", messages=[ChatMessage(role="user", content="a")], **options)))


@pytest.mark.parametrize("options", [*SHARED, {"logprobs": 1}, {"echo": True}])
def test_a_frame_of_a_completion_is_its_chunks(server: RunningGateway, options: dict[str, Any]) -> None:
    check(server, CompletionOperation(CompletionRequest(model="tiny", prompt="a", n=2, **options)))


def check(server: RunningGateway, operation: ChatOperation | CompletionOperation) -> None:
    """Pieces of every kind, each of them once more written without a thought for speed."""
    serving = server.model.serving()
    writer = operation.writer(operation.plan(serving), serving)
    num_choices = operation.fields.n or 1
    for index in range(num_choices):
        writer.frames(Piece(index, [TextDelta("first")], token_ids=[70]))
    entry = TokenEntry(70, TokenLogprobs(-0.5, []), 0)
    for index in range(num_choices):
        for piece in (
            Piece(index, [TextDelta('a "b"\n\\ é 🚌 \x00 \ud7ff')], token_ids=[71]),
            Piece(index, [TextDelta("a")], entries=[entry], token_ids=[71]),
            Piece(index, [ReasoningDelta("hm")], token_ids=[71]),
            Piece(index, [ReasoningDelta("hm"), TextDelta("so")], token_ids=[71]),
            Piece(index, [], entries=[entry], token_ids=[71]),
            Piece(index, [TextDelta("the end")], token_ids=[71], finish_reason="length"),
            Piece(index, [], finish_reason="stop"),
        ):
            assert writer.frames(piece) == b"".join(map(frame, writer.chunks(piece)))
