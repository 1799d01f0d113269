from __future__ import annotations

import msgspec
import pytest

from core_engine.request import Request, SamplingParams, Status
from tests.engine.helpers import make_sequence


def test_new_sequence_waits_with_its_prompt_pending() -> None:
    sequence = make_sequence(3, prompt=10)
    assert sequence.status is Status.WAITING
    assert (sequence.num_tokens, sequence.num_pending_tokens, sequence.num_output_tokens) == (10, 10, 0)
    assert sequence.block_table == []


def test_a_decode_is_one_pending_token_and_nothing_else() -> None:
    sequence = make_sequence(prompt=10, computed=10)
    sequence.append_token(7)
    assert sequence.num_pending_tokens == 1
    assert sequence.num_output_tokens == 1
    assert sequence.token_ids[-1] == 7


def test_recomputation_counts_output_as_pending_too() -> None:
    sequence = make_sequence(prompt=10, output=5, computed=0)
    assert sequence.num_pending_tokens == 15


def test_growing_a_sequence_leaves_its_request_alone() -> None:
    sequence = make_sequence(prompt=4)
    sequence.append_token(9)
    assert sequence.request.prompt_token_ids == [0, 1, 2, 3]


def test_private_blocks_are_those_not_shared() -> None:
    sequence = make_sequence(blocks=[4, 5, 6])
    sequence.num_shared_blocks = 1
    assert sequence.num_private_blocks == 2


def test_request_survives_the_wire() -> None:
    request = Request(
        id="a",
        model="m",
        prompt_token_ids=[1, 2],
        sampling=SamplingParams(logit_bias={5: -1.5}, allowed_token_ids=(1, 2), bad_words_token_ids=((1, 2), (3,))),
        n=2,
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=Request) == request


def test_request_is_immutable() -> None:
    request = Request(id="a", model="m", prompt_token_ids=[1])
    with pytest.raises(AttributeError):
        request.priority = 3  # type: ignore[misc]
