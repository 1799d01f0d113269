"""Engine processes that crash, hang, can't load or talk nonsense, and parents that die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import uvloop

from core_engine import (
    EngineClient,
    EngineConfig,
    EngineDied,
    EngineUnavailable,
    FromEngine,
    IterationOutput,
    ModelPrepared,
    Patience,
)
from core_engine.service import incarnation
from tests.service.conftest import StartClient
from tests.service.fake_engine import PROGRAM
from tests.service.test_client import heard, is_empty, request, tokens_of
from tests.support.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[2]
HASTY = Patience(first_back_off_seconds=0.05, max_failed_starts=3, stop_seconds=1)


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incarnation, "_PROGRAM", PROGRAM)


def wait_until_gone(pid: int) -> None:
    """Return when a process has ended; one that only waits to be reaped has."""
    process = psutil.Process(pid) if psutil.pid_exists(pid) else None
    while process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)


async def test_a_crash_ends_every_request_and_the_next_engine_serves(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, patience=HASTY)
    await client.wait_ready()
    tickets = [await client.submit(request(client, f"r{i}", max_tokens=2000)) for i in range(20)]
    readers = [asyncio.create_task(tokens_of(ticket)) for ticket in tickets]
    await asyncio.sleep(0.05)
    unanswered = asyncio.create_task(client.submit(request(client, "unanswered")))
    await asyncio.sleep(0)
    assert client.engine_pid is not None
    os.kill(client.engine_pid, signal.SIGKILL)
    endings = await asyncio.gather(*readers, unanswered, return_exceptions=True)
    assert {str(ending) for ending in endings if isinstance(ending, EngineDied)} == {
        "the engine process was killed by SIGKILL"
    }
    assert all(isinstance(ending, EngineDied) for ending in endings[:-1])
    assert client.state == "restarting"
    with pytest.raises(EngineUnavailable, match="is being restarted"):
        await client.submit(request(client, "meanwhile"))
    await client.wait_ready()
    assert client.epoch == 2
    assert len(await tokens_of(await client.submit(request(client, "r0")))) == 20


async def test_a_hung_engine_is_ended_and_replaced(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, patience=Patience(hang_seconds=0.4, first_back_off_seconds=0.01))
    await client.wait_ready()
    ticket = await client.submit(request(client, "a", max_tokens=2000))
    await ticket.next()
    assert client.engine_pid is not None
    os.kill(client.engine_pid, signal.SIGSTOP)
    with pytest.raises(EngineDied, match="finished no iteration for"):
        await tokens_of(ticket)
    await client.wait_ready()
    assert client.epoch == 2
    assert len(await tokens_of(await client.submit(request(client, "b")))) == 20


async def test_an_idle_engine_does_not_hang(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, patience=Patience(hang_seconds=0.5))
    await client.wait_ready()
    await asyncio.sleep(0.8)
    assert len(await tokens_of(await client.submit(request(client, "a")))) == 20
    assert client.epoch == 1


async def test_a_slow_gateway_does_not_take_the_engine_for_hung(start_client: StartClient, model: Path) -> None:
    client = await start_client(model, patience=Patience(hang_seconds=0.5))
    await client.wait_ready()
    ticket = await client.submit(request(client, "a", max_tokens=60))
    subprocess.run(["sleep", "0.8"], check=True)  # noqa: ASYNC221 - the loop stands still, which is the point
    assert len(await tokens_of(ticket)) == 60
    assert client.epoch == 1


@pytest.mark.usefixtures("fake_engine")
async def test_loading_may_take_its_time(start_client: StartClient, tmp_path: Path) -> None:
    client = await start_client(write_tiny_model(tmp_path / "slow-load"), patience=Patience(hang_seconds=0.1))
    await client.wait_ready()
    assert client.epoch == 1


@pytest.mark.parametrize(
    ("model_name", "options", "reason"),
    [
        ("tiny", {"policies": ("nonsense",)}, "nonsense"),
        ("missing", {}, "missing"),
    ],
)
async def test_what_can_never_work_is_not_tried_again(
    start_client: StartClient, model: Path, model_name: str, options: dict[str, tuple[str, ...]], reason: str
) -> None:
    client = await start_client(model.parent / model_name, patience=HASTY, **options)
    with pytest.raises(EngineUnavailable, match=f"has failed: .*{reason}"):
        await client.wait_ready()
    await asyncio.sleep(0.2)
    assert (client.state, client.epoch) == ("failed", 1)
    assert reason in (client.failure or "")
    with pytest.raises(EngineUnavailable, match=reason):
        await client.wait_prepared() if client.model_directory is None else await client.wait_ready()


@pytest.mark.usefixtures("fake_engine")
async def test_crashes_before_it_is_ready_are_tried_again_but_not_for_ever(
    start_client: StartClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await start_client("crash", patience=HASTY)
    with pytest.raises(EngineUnavailable, match="3 times in a row before it was ready; last it ended with status 7"):
        await client.wait_ready()
    assert (client.state, client.epoch) == ("failed", 3)
    pauses = [record.getMessage().split(" in ")[1] for record in caplog.records if "next one" in record.getMessage()]
    assert pauses == ["0.05 s", "0.1 s"]


@pytest.mark.usefixtures("fake_engine")
async def test_an_exception_of_the_engine_ends_its_process(
    start_client: StartClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = await start_client(write_tiny_model(tmp_path / "broken-step"), patience=HASTY)
    await client.wait_ready()
    with pytest.raises(EngineDied, match="ended with status 1"):
        await client.submit(request(client, "a"))
    assert "this step is broken" in capfd.readouterr().err
    await client.wait_ready()
    assert client.epoch == 2


@pytest.mark.usefixtures("fake_engine")
async def test_messages_of_another_epoch_are_dropped(start_client: StartClient) -> None:
    client = await start_client("stale")
    messages: list[FromEngine] = []
    client.listeners.append(messages.append)
    assert await client.wait_prepared() == "fresh"
    if len(messages) < 2:
        await heard(client, lambda message: True)
    prepared, iteration = messages
    assert isinstance(prepared, ModelPrepared)
    assert isinstance(iteration, IterationOutput)
    assert (prepared.epoch, iteration.epoch) == (1, 1)


@pytest.mark.usefixtures("fake_engine")
async def test_an_engine_that_talks_nonsense_is_ended(start_client: StartClient) -> None:
    client = await start_client("garbage", patience=HASTY)
    with pytest.raises(EngineUnavailable, match="3 times in a row"):
        await client.wait_ready()


PARENT = """
import asyncio, sys
from core_engine import EngineClient, EngineConfig
async def main():
    client = EngineClient(EngineConfig(model=sys.argv[1], executor="simulated"))
    await client.start()
    await client.wait_ready()
    print(client.engine_pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_an_engine_ends_with_its_parent(model: Path, socket_directories: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(model)),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(socket_directories)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    await parent.wait()
    wait_until_gone(pid)
    assert is_empty(socket_directories)


LIFELINE = """
import os, sys, time
from core_engine.service import lifeline
if sys.argv[1] == "watched":
    sys.platform = "another"
lifeline.end_with_parent(int(sys.argv[2]))
print(os.getpid(), flush=True)
time.sleep(600)
"""
MIDDLE = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], str(os.getpid())], stdout=subprocess.PIPE)
sys.stdout.buffer.write(child.stdout.readline())
"""


@pytest.mark.parametrize("how", ["kernel", "watched"])
async def test_a_process_ends_with_its_parent(how: str) -> None:
    middle = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MIDDLE, LIFELINE, how), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    pid = int((await middle.communicate())[0])
    wait_until_gone(pid)


def test_a_process_whose_parent_is_gone_already_ends_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", LIFELINE, "kernel", "1"], cwd=ROOT, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_all_this_works_in_uvloop_too(model: Path) -> None:
    """The gateway runs in it, and it spawns processes its own way."""

    async def scenario() -> None:
        client = EngineClient(EngineConfig(model=str(model), executor="simulated"), patience=HASTY)
        await client.start()
        await client.wait_ready()
        ticket = await client.submit(request(client, "a", max_tokens=2000))
        assert client.engine_pid is not None
        os.kill(client.engine_pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="SIGKILL"):
            await tokens_of(ticket)
        await client.wait_ready()
        assert len(await tokens_of(await client.submit(request(client, "b")))) == 20
        await client.stop()

    uvloop.run(scenario())
