"""How gateway and engine process talk: MessagePack over two ZeroMQ pipes on sockets of a private directory.

The gateway's side makes the directory and binds; the engine's side connects. Neither ever waits to
send: the pipes hold whatever the other side hasn't read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import zmq

from core_engine.config import EngineConfig
from core_engine.messages import FromEngine, ToEngine

_SUBMISSIONS, _OUTPUTS, _START = "submissions", "outputs", "start"

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine process is told when it is spawned."""

    epoch: int
    parent_pid: int
    log_level: int
    config: EngineConfig


def write_start(directory: Path, start: Start) -> None:
    """Leave the parameters of an engine process in its directory."""
    (directory / _START).write_bytes(_encoder.encode(start))


def read_start(directory: Path) -> Start:
    """Read what `write_start` left."""
    return msgspec.msgpack.decode((directory / _START).read_bytes(), type=Start)


class GatewayLink:
    """The gateway's ends of the pipes; bound at once, so that the engine may come later."""

    def __init__(self, directory: Path) -> None:
        self._context = zmq.Context(io_threads=1)
        self._submissions = _socket(self._context, zmq.PUSH)
        self._outputs = _socket(self._context, zmq.PULL)
        self._submissions.bind(_address(directory, _SUBMISSIONS))
        self._outputs.bind(_address(directory, _OUTPUTS))

    @property
    def file_descriptor(self) -> int:
        """Becomes readable when `receive` may have something; then call it until it has nothing."""
        return self._outputs.fileno()

    @property
    def is_connected(self) -> bool:
        """Whether an engine reads what is sent."""
        return bool(self._submissions.poll(0, zmq.POLLOUT))

    def send(self, message: ToEngine) -> bool:
        """Send at once; False where no engine is connected."""
        try:
            self._submissions.send(_encoder.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> FromEngine | None:
        """Return the next message that has arrived, or None."""
        try:
            return _from_engine.decode(self._outputs.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def close(self) -> None:
        """Close both pipes; what wasn't read is lost."""
        self._context.destroy(linger=0)


class EngineLink:
    """The engine's ends of the pipes."""

    def __init__(self, directory: Path) -> None:
        self._context = zmq.Context(io_threads=1)
        self._submissions = _socket(self._context, zmq.PULL)
        self._outputs = _socket(self._context, zmq.PUSH)
        self._submissions.connect(_address(directory, _SUBMISSIONS))
        self._outputs.connect(_address(directory, _OUTPUTS))

    def wait(self, timeout_seconds: float | None) -> bool:
        """Whether `receive` has something; waits for it until the timeout (None: for ever)."""
        return bool(self._submissions.poll(None if timeout_seconds is None else int(timeout_seconds * 1000)))

    def receive(self) -> ToEngine | None:
        """Return the next message that has arrived, or None."""
        try:
            return _to_engine.decode(self._submissions.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def send(self, message: FromEngine) -> None:
        """Send without waiting."""
        self._outputs.send(_encoder.encode(message))

    def close(self) -> None:
        """Close both pipes, after a second at most for what is still to be sent."""
        self._context.destroy(linger=1000)


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.set_hwm(0)  # no limit: a send must never wait, and both sides read always
    return socket


def _address(directory: Path, name: str) -> str:
    return f"ipc://{directory / name}"
