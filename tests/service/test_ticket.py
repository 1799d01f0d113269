"""Ticket: what a slow reader gets, and what it hears at the end."""

from __future__ import annotations

import asyncio

import pytest

from core_engine.errors import EngineDied
from core_engine.messages import Accepted, Outcome, SequenceOutput, TokenLogprobs
from core_engine.service import Ticket


def ticket_and_cancellations() -> tuple[Ticket, list[str]]:
    cancelled: list[str] = []
    return Ticket(Accepted("a", 10, {"limit-requests": "5"}), cancelled.append), cancelled


def output(sample: int, *token_ids: int, **fields: object) -> SequenceOutput:
    return SequenceOutput("a", sample, list(token_ids), **fields)  # type: ignore[arg-type]


async def test_what_was_not_fetched_comes_at_once_by_sequence() -> None:
    ticket, _ = ticket_and_cancellations()
    first, second = TokenLogprobs(-1.0, []), TokenLogprobs(-2.0, [])
    ticket.deliver(output(0, 1, logprobs=[first]))
    ticket.deliver(output(1, 7))
    ticket.deliver(output(0, 2, 3, logprobs=[second, second], finish_reason="stop", stop_token_id=3))
    assert await ticket.next() == [
        output(0, 1, 2, 3, logprobs=[first, second, second], finish_reason="stop", stop_token_id=3),
        output(1, 7),
    ]


async def test_a_reader_is_woken_and_can_be_cancelled_without_loss() -> None:
    ticket, _ = ticket_and_cancellations()
    impatient = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    impatient.cancel()
    ticket.deliver(output(0, 1))
    assert await ticket.next() == [output(0, 1)]
    patient = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    ticket.deliver(output(0, 2))
    assert await patient == [output(0, 2)]


async def test_only_a_reader_that_waits_is_passed_by() -> None:
    ticket, _ = ticket_and_cancellations()
    taken: list[int] = []

    def take(output: SequenceOutput) -> bool:
        taken.extend(output.token_ids)
        return output.finish_reason is None

    ticket.divert(take)
    ticket.deliver(output(0, 1))
    assert await ticket.next() == [output(0, 1)]  # else it could come after what follows
    reader = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    ticket.deliver(output(0, 2))
    ticket.deliver(output(0, 3))
    ticket.deliver(output(0, 4, finish_reason="stop"))
    ticket.deliver(output(1, 5))
    assert await reader == [output(0, 4, finish_reason="stop"), output(1, 5)]
    assert taken == [2, 3, 4]


async def test_nothing_is_taken_after_a_cancellation() -> None:
    ticket, _ = ticket_and_cancellations()
    ticket.divert(lambda output: pytest.fail("nobody wants it"))
    reader = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    ticket.cancel()
    ticket.deliver(output(0, 1))
    with pytest.raises(RuntimeError, match="cancelled"):
        await reader


async def test_the_reader_hears_of_a_failure_whatever_comes_after() -> None:
    ticket, _ = ticket_and_cancellations()

    def take(output: SequenceOutput) -> bool:
        raise ValueError("half a character")

    ticket.divert(take)
    reader = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    ticket.deliver(output(0, 1))
    ticket.deliver(output(0, 2, finish_reason="stop"))
    with pytest.raises(ValueError, match="half"):
        await reader


async def test_the_outcome_comes_with_the_last_output() -> None:
    ticket, cancelled = ticket_and_cancellations()
    ticket.deliver(output(0, 1, finish_reason="length"))
    ticket.finish(Outcome(request_id="a", finish_reason="length"))
    assert [last.finish_reason for last in await ticket.next()] == ["length"]
    assert ticket.outcome is not None
    with pytest.raises(RuntimeError, match="has ended"):
        await ticket.next()
    ticket.cancel()
    assert cancelled == []


async def test_death_comes_after_what_had_arrived() -> None:
    ticket, cancelled = ticket_and_cancellations()
    ticket.deliver(output(0, 1))
    ticket.die("killed")
    assert await ticket.next() == [output(0, 1)]
    for _ in range(2):
        with pytest.raises(EngineDied, match="killed"):
            await ticket.next()
    ticket.cancel()
    assert cancelled == []


async def test_cancelling_is_said_once_and_ends_everything() -> None:
    ticket, cancelled = ticket_and_cancellations()
    reader = asyncio.create_task(ticket.next())
    await asyncio.sleep(0)
    ticket.cancel()
    ticket.cancel()
    ticket.deliver(output(0, 1))
    assert cancelled == ["a"]
    with pytest.raises(RuntimeError, match="has been cancelled"):
        await reader
    with pytest.raises(RuntimeError, match="has been cancelled"):
        await ticket.next()
