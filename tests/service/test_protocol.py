"""The pipes between gateway and engine process, and the loop at the engine's end of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_engine import Engine, EngineConfig, Request, SamplingParams
from core_engine.messages import Cancel, FromEngine, IterationOutput, Outcome, Shutdown, Submit, ToEngine
from core_engine.service import process
from core_engine.service.process import serve
from core_engine.service.protocol import EngineLink, GatewayLink, Start, read_start, write_start

EPOCH = 3


@pytest.fixture
def links(socket_directories: Path) -> Iterator[tuple[GatewayLink, EngineLink]]:
    with (
        contextlib.closing(GatewayLink(socket_directories)) as gateway,
        contextlib.closing(EngineLink(socket_directories)) as engine,
    ):
        yield gateway, engine


def send(gateway: GatewayLink, message: ToEngine) -> None:
    while not gateway.send(message):
        threading.Event().wait(0.005)  # the engine's end is still connecting


def receive(gateway: GatewayLink) -> FromEngine:
    while (message := gateway.receive()) is None:
        threading.Event().wait(0.001)
    return message


def request(id: str, max_tokens: int = 3, stop_token_ids: tuple[int, ...] = ()) -> Request:
    sampling = SamplingParams(max_tokens=max_tokens, logit_bias={7: -100.0}, stop_token_ids=stop_token_ids)
    return Request(id=id, model="tiny", prompt_token_ids=[3, 4], sampling=sampling, tenant="ä")


def test_parameters_of_a_process_survive_the_way(tmp_path: Path) -> None:
    start = Start(epoch=1, parent_pid=2, log_level=10, config=EngineConfig(policies=("fcfs",), kv_memory_fraction=0.5))
    write_start(tmp_path, start)
    assert read_start(tmp_path) == start


def test_messages_survive_the_way(links: tuple[GatewayLink, EngineLink]) -> None:
    gateway, engine = links
    submission = Submit(EPOCH, request("a", stop_token_ids=(1, 2)))
    send(gateway, submission)
    engine.wait(10)
    assert engine.receive() == submission
    assert engine.receive() is None
    told = IterationOutput(
        epoch=EPOCH, policy_version=1, finished=[Outcome(request_id="a", finish_reason="stop", block_hashes=(b"\xff",))]
    )
    engine.send(told)
    assert receive(gateway) == told
    assert gateway.receive() is None


def test_sending_to_nobody_says_so(socket_directories: Path) -> None:
    with contextlib.closing(GatewayLink(socket_directories)) as gateway:
        assert not gateway.is_connected
        assert not gateway.send(Shutdown(EPOCH))


def test_a_reader_that_sleeps_never_holds_up_the_engine(links: tuple[GatewayLink, EngineLink]) -> None:
    gateway, engine = links
    for version in range(20_000):
        engine.send(IterationOutput(epoch=EPOCH, policy_version=version))
    versions = [
        message.policy_version for _ in range(20_000) if isinstance(message := receive(gateway), IterationOutput)
    ]
    assert versions == list(range(20_000))


def test_the_loop_listens_between_iterations_and_only_to_its_own_epoch(
    links: tuple[GatewayLink, EngineLink], model: Path
) -> None:
    gateway, link = links
    engine = Engine.load(EngineConfig(model=str(model), executor="simulated"))
    engine.epoch = EPOCH
    loop = threading.Thread(target=serve, args=(engine, link), daemon=True)
    loop.start()
    send(gateway, Submit(EPOCH - 1, request("ghost")))
    send(gateway, Shutdown(EPOCH - 1))
    send(gateway, Submit(EPOCH, request("endless", max_tokens=2000)))
    send(gateway, Submit(EPOCH, request("real")))
    endings: dict[str, str] = {}
    accepted: list[str] = []
    while len(endings) < 2:
        message = receive(gateway)
        assert isinstance(message, IterationOutput)
        assert message.epoch == EPOCH
        accepted += [answer.request_id for answer in message.accepted]
        endings |= {outcome.request_id: outcome.finish_reason for outcome in message.finished}
        if "real" in endings:
            send(gateway, Cancel(EPOCH, "endless"))
    assert accepted == ["endless", "real"]
    assert endings == {"real": "length", "endless": "cancelled"}
    send(gateway, Shutdown(EPOCH))
    loop.join(10)
    assert not loop.is_alive()


def test_the_loop_gives_memory_back_whenever_nothing_comes_for_a_while(
    links: tuple[GatewayLink, EngineLink], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, link = links
    gave_back = threading.Event()
    monkeypatch.setattr(process, "_REST_SECONDS", 0.01)
    monkeypatch.setattr(process, "give_back_memory", gave_back.set)
    engine = Engine.load(EngineConfig(model=str(model), executor="simulated"))
    engine.epoch = EPOCH
    loop = threading.Thread(target=serve, args=(engine, link), daemon=True)
    loop.start()
    for id in ("a", "b"):
        assert gave_back.wait(10)
        gave_back.clear()
        send(gateway, Submit(EPOCH, request(id)))
        message = receive(gateway)
        while not (isinstance(message, IterationOutput) and message.finished):
            message = receive(gateway)
    assert gave_back.wait(10)
    send(gateway, Shutdown(EPOCH))
    loop.join(10)
    assert not loop.is_alive()
