"""Incarnation: one engine process, with sockets, an epoch and a directory of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from core_engine.config import EngineConfig
from core_engine.messages import FromEngine, Shutdown, ToEngine
from core_engine.service.protocol import GatewayLink, Start, write_start

_MAX_MESSAGES_AT_ONCE = 64  # before the event loop's other work has its turn
_TRACEBACK_SECONDS = 0.5
_STDERR = 2
_PROGRAM = "core_engine.service.process"

_log = logging.getLogger("jitney.service")


class Incarnation:
    """Spawns an engine process and hears it until it ends. Used inside one event loop.

    `on_message` is called for every message of this epoch, in the loop, as it arrives: the pipe is
    always drained, whatever becomes of the messages.
    """

    def __init__(self, config: EngineConfig, epoch: int, on_message: Callable[[FromEngine], None]) -> None:
        self.epoch = epoch
        self._config = config
        self._on_message = on_message
        self._directory: Path | None = None
        self._link: GatewayLink | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id, once there is a process."""
        return None if self._process is None else self._process.pid

    async def spawn(self) -> None:
        """Start the process; raises OSError where that is impossible."""
        self._directory = Path(tempfile.mkdtemp(prefix="jitney-"))  # readable by its owner only
        self._link = GatewayLink(self._directory)
        asyncio.get_running_loop().add_reader(self._link.file_descriptor, self._read)
        level = logging.getLogger("jitney").getEffectiveLevel()
        write_start(
            self._directory, Start(epoch=self.epoch, parent_pid=os.getpid(), log_level=level, config=self._config)
        )
        # A session of its own keeps a terminal's Ctrl-C away from it, from its first instruction on.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _PROGRAM, str(self._directory)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,  # whatever prints in there mustn't end up in the output of a command
            env=child_environment(),
            start_new_session=True,
        )

    async def wait(self) -> int:
        """Wait until the process has ended and everything it sent is handled; return its exit status."""
        assert self._process is not None
        status = await self._process.wait()
        while self.read_some():
            pass
        return status

    def send(self, message: ToEngine) -> bool:
        """Send at once; False where the process doesn't hear."""
        return self._link is not None and self._link.send(message)

    async def stop(self, patience_seconds: float) -> None:
        """Ask the process to end, and kill it if it takes longer than this."""
        if self._process is not None and self._process.returncode is None:
            self.send(Shutdown(self.epoch))
            try:
                await asyncio.wait_for(self._process.wait(), patience_seconds)
            except TimeoutError:
                self.kill()
                await self._process.wait()

    async def show_traceback(self) -> None:
        """Have the process write to stderr where each of its threads is, as far as it still can."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGUSR1)
            await asyncio.sleep(_TRACEBACK_SECONDS)

    def kill(self) -> None:
        """End the process by force, if it is still there."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def close(self) -> None:
        """Close the sockets and remove their directory; a process that is still there is killed."""
        self.kill()
        if self._link is not None:
            asyncio.get_running_loop().remove_reader(self._link.file_descriptor)
            self._link.close()
            self._link = None
        self._remove_directory()

    def _read(self) -> None:
        # The descriptor tells of new messages only once: whatever is left must be asked for.
        if self.read_some():
            asyncio.get_running_loop().call_soon(self._read)

    def read_some(self) -> bool:
        """Handle messages that have arrived, a limited number; False when there were none."""
        for count in range(_MAX_MESSAGES_AT_ONCE):
            if self._link is None:
                return False
            try:
                message = self._link.receive()
            except msgspec.MsgspecError:
                _log.exception("the engine process sent what can't be read; ending it")
                self.close()
                return False
            if message is None:
                return count > 0
            if self._directory is not None and self._link.is_connected:
                self._remove_directory()  # both pipes stand; from here on no crash can leave files behind
            if message.epoch == self.epoch:
                self._on_message(message)
        return True

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def child_environment() -> dict[str, str]:
    """An environment that (with -P) lets a child import from where this process does, and from nowhere else."""
    search_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": search_path}
