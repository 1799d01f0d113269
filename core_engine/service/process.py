"""The engine process: load a model, then iterate while there is work. Run by Incarnation, not by hand."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import signal
import sys
import time
from pathlib import Path

import msgspec

from core_engine.engine import Engine
from core_engine.errors import ConfigurationError, ModelError
from core_engine.heap import give_back_memory
from core_engine.loading import grammar_compiler, load_executor, model_name, prepare_model
from core_engine.messages import (
    Cancel,
    EngineFailed,
    EngineReady,
    IterationOutput,
    ModelPrepared,
    Query,
    Shutdown,
    Submit,
)
from core_engine.service.lifeline import end_with_parent
from core_engine.service.operator import Operator
from core_engine.service.pieces import in_pieces
from core_engine.service.protocol import EngineLink, Start, read_start

_IDLE_WAIT_SECONDS = 0.002  # between iterations in which policies let nothing run
_REST_SECONDS = 1.0  # without work, until memory that it took is given back
_FAREWELL_SECONDS = 10.0  # for the parent to take note of a failure


def main() -> None:
    """Serve until told to shut down; the only argument is the directory with sockets and parameters."""
    directory = Path(sys.argv[1])
    start = read_start(directory)
    # The parent decides when this process ends: a signal to the whole group must not cut its drain short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent(start.parent_pid)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    name = model_name(start.config).replace("%", "%%")
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s %(levelname)s {name}: %(message)s")
    logging.getLogger("jitney").setLevel(start.log_level)
    with contextlib.closing(EngineLink(directory)) as link:
        engine = _load(start, link)
        if engine is None:
            link.wait(_FAREWELL_SECONDS)
            sys.exit(1)
        # What has been loaded stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        serve(engine, link)


def serve(engine: Engine, link: EngineLink) -> None:
    """Run one iteration after another while there is work, wait for a message while there is none."""
    operator = Operator(engine)
    pause: float | None = None
    while True:
        if pause is None:
            _rest(link)
        elif pause != 0:
            link.wait(pause)
        if not _take_in(engine, link, operator):
            return
        for answer in operator.finished():
            link.send(answer)
        if not engine.has_work:
            pause = _IDLE_WAIT_SECONDS if operator.is_busy else None
            continue
        output = engine.step()
        for message in in_pieces(output):
            link.send(message)
        pause = _IDLE_WAIT_SECONDS if _did_nothing(output) else 0


def _rest(link: EngineLink) -> None:
    """Wait for a message however long it takes; if it takes long, without what the iterations before have freed."""
    if not link.wait(_REST_SECONDS):
        give_back_memory()
        link.wait(None)


def _load(start: Start, link: EngineLink) -> Engine | None:
    """Return the engine, or None, having told the parent why, where trying again would not help."""
    phases: dict[str, float] = {}
    began = time.perf_counter()
    try:
        directory = prepare_model(start.config)
        phases["prepare"] = time.perf_counter() - began
        link.send(ModelPrepared(start.epoch, str(directory)))
        executor = load_executor(start.config, directory, phases.__setitem__)
        engine = Engine(start.config, executor, grammars=grammar_compiler(directory, executor.spec))
    except (ConfigurationError, ModelError) as error:
        link.send(EngineFailed(start.epoch, str(error)))
        return None
    engine.epoch = start.epoch
    link.send(EngineReady(start.epoch, msgspec.structs.replace(engine.info, phases=phases)))
    return engine


def _take_in(engine: Engine, link: EngineLink, operator: Operator) -> bool:
    """Hand every message that has arrived to the engine; False when it is to shut down."""
    while (message := link.receive()) is not None:
        if message.epoch != engine.epoch:
            continue
        match message:
            case Submit():
                engine.submit(message.request)
            case Cancel():
                engine.cancel(message.request_id)
            case Query():
                if (answer := operator.take(message)) is not None:
                    link.send(answer)
            case Shutdown():
                return False
    return True


def _did_nothing(output: IterationOutput) -> bool:
    """Whether no row was executed: doing that again at once would only burn the processor."""
    stats = output.stats
    return stats is not None and stats.prefill_tokens + stats.decode_tokens + stats.idle_rows == 0


if __name__ == "__main__":
    main()
