"""An engine process that misbehaves, as the name of its model says. Run in place of the real program."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import zmq

from core_engine.engine import Engine
from core_engine.messages import IterationOutput, IterationStats, ModelPrepared
from core_engine.service import process
from core_engine.service.protocol import EngineLink, read_start

PROGRAM = "tests.service.fake_engine"


def stale(link: EngineLink, epoch: int) -> None:
    """Say everything twice, first as an earlier incarnation would."""
    link.send(ModelPrepared(epoch - 1, "stale"))
    link.send(ModelPrepared(epoch, "fresh"))
    link.send(IterationOutput(epoch=epoch - 1, policy_version=1, stats=IterationStats(iteration=1)))
    link.send(IterationOutput(epoch=epoch, policy_version=1, stats=IterationStats(iteration=2)))
    link.wait(None)


def garbage(link: EngineLink, epoch: int) -> None:
    """Send what is no message."""
    socket: zmq.Socket[bytes] = link._outputs
    socket.send(b"\xc1")
    link.wait(None)


def raising_step(engine: Engine) -> Any:
    raise RuntimeError("this step is broken")


def slow_load(*arguments: Any) -> Path:
    time.sleep(0.5)
    return Path(read_start(Path(sys.argv[1])).config.model)


def main() -> None:
    directory = Path(sys.argv[1])
    start = read_start(directory)
    match Path(start.config.model).name:
        case "crash":
            sys.exit(7)
        case "broken-step":
            Engine.step = raising_step  # type: ignore[method-assign]
            process.main()
        case "slow-load":
            process.prepare_model = slow_load  # type: ignore[attr-defined]
            process.main()
        case name:
            {"stale": stale, "garbage": garbage}[name](EngineLink(directory), start.epoch)


if __name__ == "__main__":
    main()
