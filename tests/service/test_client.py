"""EngineClient against a real engine process: requests, refusals, cancellation, and the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core_engine import (
    Engine,
    EngineClient,
    EngineConfig,
    EngineDied,
    EngineUnavailable,
    FromEngine,
    InvalidRequest,
    IterationOutput,
    Overloaded,
    Request,
    SamplingParams,
    Ticket,
)
from tests.service.conftest import StartClient


def request(client: EngineClient, id: str, max_tokens: int = 20, prompt: tuple[int, ...] = (3, 4, 5)) -> Request:
    assert client.info is not None
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0)
    return Request(id=id, model=client.info.model, prompt_token_ids=list(prompt), sampling=sampling)


async def tokens_of(ticket: Ticket) -> list[int]:
    tokens: list[int] = []
    while True:
        for output in await ticket.next():
            tokens += output.token_ids
            if output.finish_reason is not None:
                return tokens


async def heard(client: EngineClient, condition: object) -> IterationOutput:
    """The next message of an iteration for which the condition holds."""
    found: asyncio.Future[IterationOutput] = asyncio.get_running_loop().create_future()

    def listen(message: FromEngine) -> None:
        if isinstance(message, IterationOutput) and not found.done() and condition(message):  # type: ignore[operator]
            found.set_result(message)

    client.listeners.append(listen)
    try:
        return await found
    finally:
        client.listeners.remove(listen)


async def test_requests_run_as_they_do_without_a_process(start_client: StartClient, quick_model: Path) -> None:
    client = await start_client(quick_model)
    assert client.state == "starting"
    assert await client.wait_prepared() == str(quick_model)
    info = await client.wait_ready()
    assert (client.state, client.epoch, info.model, info.phases.keys()) == ("ready", 1, "quick", {"prepare"})
    prompts = [(3, 4, 5), (6,), tuple(range(10, 60))]
    tickets = [await client.submit(request(client, f"r{i}", prompt=prompt)) for i, prompt in enumerate(prompts)]
    texts = await asyncio.gather(*map(tokens_of, tickets))
    engine = Engine.load(EngineConfig(model=str(quick_model), executor="simulated", seed=1))
    sampling = SamplingParams(max_tokens=20, temperature=0)
    assert texts == engine.generate([list(prompt) for prompt in prompts], sampling)
    assert [ticket.max_tokens for ticket in tickets] == [20, 20, 20]
    assert [ticket.outcome and ticket.outcome.finish_reason for ticket in tickets] == ["length"] * 3


async def test_a_slow_reader_gets_everything_at_once(start_client: StartClient, quick_model: Path) -> None:
    client = await start_client(quick_model)
    await client.wait_ready()
    ticket = await client.submit(request(client, "slow", max_tokens=500))
    await heard(client, lambda message: bool(message.finished))
    (output,) = await ticket.next()
    assert (len(output.token_ids), output.finish_reason) == (500, "length")


async def test_refusals(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, max_unanswered=2)
    with pytest.raises(EngineUnavailable, match="still being loaded"):
        await client.submit(Request(id="early", model="tiny", prompt_token_ids=[1]))
    await client.wait_ready()
    with pytest.raises(InvalidRequest, match="not served here") as invalid:
        await client.submit(Request(id="other", model="other", prompt_token_ids=[1]))
    assert invalid.value.code == "model_not_found"
    waiting = [asyncio.create_task(client.submit(request(client, id))) for id in ("a", "b")]
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="'a' is running already"):
        await client.submit(request(client, "a"))
    with pytest.raises(Overloaded, match="2 requests are waiting") as overloaded:
        await client.submit(request(client, "c"))
    assert overloaded.value.reason == "unanswered_limit"
    assert overloaded.value.retry_after_seconds >= 1
    tickets = await asyncio.gather(*waiting)
    assert [len(await tokens_of(ticket)) for ticket in tickets] == [20, 20]
    assert len(await tokens_of(await client.submit(request(client, "c")))) == 20


async def test_a_policy_refuses_for_now(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, policies=("queue_limit:max_requests=1",), sequence_limit=1)
    await client.wait_ready()
    results = await asyncio.gather(
        *(client.submit(request(client, f"r{i}", max_tokens=2000)) for i in range(4)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, Overloaded)]
    assert refused
    assert all(error.reason == "queue_full" and error.retry_after_seconds > 0 for error in refused)


async def test_cancelling_frees_what_a_request_held(start_client: StartClient, model: Path) -> None:
    client = await start_client(model)
    info = await client.wait_ready()
    ticket = await client.submit(request(client, "unwanted", max_tokens=2000))
    await ticket.next()
    ticket.cancel()
    ticket.cancel()
    last = await heard(client, lambda message: any(o.request_id == "unwanted" for o in message.finished))
    assert [outcome.finish_reason for outcome in last.finished] == ["cancelled"]
    assert last.stats is not None
    assert (last.stats.sequences_running, last.stats.blocks_free) == (0, info.num_blocks)
    with pytest.raises(RuntimeError, match="has been cancelled"):
        await ticket.next()


async def test_cancelling_the_submission_cancels_the_request(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, max_unanswered=1)
    await client.wait_ready()
    busy = await client.submit(request(client, "busy", max_tokens=2000))
    for attempt in range(20):
        submission = asyncio.create_task(client.submit(request(client, f"gone{attempt}", max_tokens=2000)))
        await asyncio.sleep(0.001 * (attempt % 8))
        submission.cancel()
        (result,) = await asyncio.gather(submission, return_exceptions=True)
        if isinstance(result, Ticket):
            result.cancel()
    alone = await heard(client, lambda message: message.stats is not None and message.stats.sequences_running == 1)
    assert [output.request_id for output in alone.outputs] == ["busy"]
    busy.cancel()
    assert client.info is not None
    empty = await heard(client, lambda message: message.stats is not None and message.stats.sequences_running == 0)
    assert empty.stats is not None
    assert empty.stats.blocks_free == client.info.num_blocks


async def test_a_listener_that_fails_harms_nobody(start_client: StartClient, quick_model: Path) -> None:
    client = await start_client(quick_model)

    def fail(message: FromEngine) -> None:
        raise RuntimeError("this listener is broken")

    client.listeners.append(fail)
    await client.wait_ready()
    assert len(await tokens_of(await client.submit(request(client, "a")))) == 20


def is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


async def test_stopping_ends_everything(start_client: StartClient, model: Path, socket_directories: Path) -> None:
    client = await start_client(model)
    await client.wait_ready()
    tickets = [await client.submit(request(client, f"r{i}", max_tokens=2000)) for i in range(3)]
    pid = client.engine_pid
    assert pid is not None
    await client.stop()
    await client.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert is_empty(socket_directories)
    for ticket in tickets:
        with pytest.raises(EngineDied, match="was stopped"):
            await tokens_of(ticket)
    with pytest.raises(EngineUnavailable, match="has been stopped"):
        await client.submit(request(client, "late"))
    with pytest.raises(EngineUnavailable, match="has been stopped"):
        await client.wait_ready()


@pytest.mark.parametrize("moment", ["before it runs", "while it loads"])
def test_stopping_early(model: Path, moment: str, socket_directories: Path) -> None:
    async def scenario() -> None:
        client = EngineClient(EngineConfig(model=str(model), executor="simulated"))
        await client.start()
        if moment == "while it loads":
            await client.wait_prepared()
        await client.stop()
        assert (client.state, client.engine_pid) == ("stopped", None)

    asyncio.run(scenario())
    assert is_empty(socket_directories)


async def test_signals_to_the_group_are_left_to_the_parent(start_client: StartClient, model: Path) -> None:
    client = await start_client(model)
    await client.wait_ready()
    ticket = await client.submit(request(client, "a", max_tokens=40))
    assert client.engine_pid is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(client.engine_pid, number)
    assert len(await tokens_of(ticket)) == 40
    assert client.epoch == 1


def test_a_simulated_engine_needs_no_torch(quick_model: Path) -> None:
    program = (
        "import sys; from core_engine.service import process; from core_engine import Engine, EngineConfig;"
        f"Engine.load(EngineConfig(model={str(quick_model)!r}, executor='simulated')).info;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
