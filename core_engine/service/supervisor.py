"""Supervisor: keeps an engine process running, and notices when one has crashed or hangs."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import Literal

import msgspec
import zmq

from core_engine.config import EngineConfig
from core_engine.loading import model_name
from core_engine.messages import (
    EngineFailed,
    EngineInfo,
    EngineReady,
    FromEngine,
    IterationOutput,
    ModelPrepared,
    ToEngine,
)
from core_engine.service.incarnation import Incarnation

State = Literal["starting", "ready", "restarting", "failed", "stopped"]

_log = logging.getLogger("jitney.service")


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the supervisor waits for what."""

    hang_seconds: float = 30.0  # without an iteration while there is work; at least this, and ...
    hang_factor: float = 20.0  # ... this many times the longest iteration so far
    first_back_off_seconds: float = 0.25  # before a restart; doubled each time ...
    max_back_off_seconds: float = 30.0  # ... up to this
    stable_seconds: float = 60.0  # of service, after which the back-off begins anew
    stop_seconds: float = 5.0  # for an engine to end when asked
    max_failed_starts: int = 5  # in a row, before the engine counts as failed for good


class Supervisor:
    """Runs one incarnation of the engine after another, inside one event loop.

    An incarnation has crashed when its process ends, and hangs when there is work (`has_work`) and
    no iteration ends for too long; loading is exempt. Either way `on_death` hears why, and another
    one is started after a pause. An engine that says it can't serve, or that ends
    `max_failed_starts` times in a row before it is ready, has failed for good: `failure` says why.

    `on_message` hears every message of the current epoch, `on_change` every change of `state`.
    """

    def __init__(
        self,
        config: EngineConfig,
        patience: Patience,
        *,
        has_work: Callable[[], bool],
        on_message: Callable[[FromEngine], None],
        on_death: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.state: State = "starting"
        self.failure: str | None = None
        self.info: EngineInfo | None = None
        self.model_directory: str | None = None
        self.epoch = 0
        self._config = config
        self._model = model_name(config)
        self._patience = patience
        self._has_work = has_work
        self._on_message = on_message
        self._on_death = on_death
        self._on_change = on_change
        self._incarnation: Incarnation | None = None
        self._running: asyncio.Task[None] | None = None
        self._last_progress = 0.0
        self._longest_iteration = 0.0
        self._hang: str | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the engine, while there is one."""
        return None if self._incarnation is None else self._incarnation.pid

    def start(self) -> None:
        """Begin; returns at once."""
        self._running = asyncio.get_running_loop().create_task(self._supervise())

    async def stop(self) -> None:
        """End the engine for good; returns when its process is gone. Calling it again changes nothing."""
        was_ready = self.state == "ready"
        self._change("stopped")
        running, self._running = self._running, None
        if running is None:
            return
        if self._incarnation is not None:
            await self._incarnation.stop(self._patience.stop_seconds if was_ready else 0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        self._on_death("the engine was stopped")

    def send(self, message: ToEngine) -> bool:
        """Send to the engine at once; False where none hears."""
        return self._incarnation is not None and self._incarnation.send(message)

    def work_begins(self) -> None:
        """Take note that there is work from now on: the time before isn't held against the engine."""
        self._last_progress = time.perf_counter()

    async def _supervise(self) -> None:
        try:
            await self._keep_running()
        except Exception as error:
            _log.exception("the supervisor of the engine failed")
            self._fail(f"its supervisor failed: {error!r}")

    async def _keep_running(self) -> None:
        back_off, failed_starts = self._patience.first_back_off_seconds, 0
        while True:
            began = time.perf_counter()
            ending = await self._run_once()
            if self.state in ("failed", "stopped"):
                return
            if self.state == "ready":
                failed_starts = 0
                if time.perf_counter() - began > self._patience.stable_seconds:
                    back_off = self._patience.first_back_off_seconds
            else:
                failed_starts += 1
            if failed_starts >= self._patience.max_failed_starts:
                self._fail(f"the engine ended {failed_starts} times in a row before it was ready; last it {ending}")
                return
            _log.error("%s: the engine process %s; the next one starts in %g s", self._model, ending, back_off)
            self._change("starting" if self.info is None else "restarting")
            self._on_death(f"the engine process {ending}")
            await asyncio.sleep(back_off)
            back_off = min(2 * back_off, self._patience.max_back_off_seconds)

    async def _run_once(self) -> str:
        """Run one incarnation to its end; return what it did in the end."""
        self.epoch += 1
        self._hang, self._longest_iteration = None, 0.0
        incarnation = self._incarnation = Incarnation(self._config, self.epoch, self._hear)
        watch: asyncio.Task[None] | None = None
        try:
            await incarnation.spawn()
            watch = asyncio.get_running_loop().create_task(self._end_when_hung(incarnation))
            status = await incarnation.wait()
        except (OSError, zmq.ZMQError) as error:
            return f"could not be started: {error}"
        finally:
            if watch is not None:
                watch.cancel()
            incarnation.close()
            self._incarnation = None
        return self._ending(status)

    def _ending(self, status: int) -> str:
        return _describe(status) if self._hang is None else self._hang

    async def _end_when_hung(self, incarnation: Incarnation) -> None:
        while self._hang is None:
            await asyncio.sleep(min(1.0, self._patience.hang_seconds / 4))
            if self.state != "ready" or not self._has_work():
                continue
            limit = max(self._patience.hang_seconds, self._patience.hang_factor * self._longest_iteration)
            silence = time.perf_counter() - self._last_progress
            # Where messages have only been lying here, this process was slow, not the engine.
            if silence > limit and not incarnation.read_some():
                self._hang = f"finished no iteration for {silence:.1f} s while there was work"
        await incarnation.show_traceback()
        incarnation.kill()

    def _hear(self, message: FromEngine) -> None:
        match message:
            case IterationOutput():
                self._last_progress = time.perf_counter()
                if message.stats is not None:
                    self._longest_iteration = max(self._longest_iteration, message.stats.duration_seconds)
            case ModelPrepared():
                self.model_directory = message.directory
                self._on_change()
            case EngineReady():
                self.info = message.info
                self._change("ready")
            case EngineFailed():
                self._fail(message.message)
                if self._incarnation is not None:
                    self._incarnation.kill()
        self._on_message(message)

    def _fail(self, reason: str) -> None:
        self.failure = reason
        _log.error("%s: the engine has failed for good: %s", self._model, reason)
        self._change("failed")
        self._on_death(f"the engine has failed: {reason}")

    def _change(self, state: State) -> None:
        self.state = state
        self._on_change()


def _describe(status: int) -> str:
    """What a process that ended with this status did."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
