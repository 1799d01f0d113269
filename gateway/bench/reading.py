"""Many streamed answers read by one thread, as cheaply as that can be: a client that isn't what is measured.

It looks at all connections a thousand times a second: a client that waited for every event by itself would be woken
by each, which costs the one who writes as much as the writing.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

LOOK_SECONDS = 0.001

_EVENT = b"data: {"
_BUFFER_BYTES = 1 << 18


@dataclass(slots=True)
class Reading:
    """Arrival of each event of each stream, in seconds; those that are seen together have one time."""

    arrivals: list[list[float]] = field(default_factory=list)
    processor_seconds: float = 0.0  # that reading took


def read_streams(address: tuple[str, int], requests: Sequence[bytes]) -> Reading:
    """Send each request on a connection of its own, at once, and read all answers to their ends.

    Raises OSError where a connection can't be had or breaks.
    """
    reading = Reading([[] for _ in requests])
    buffer = bytearray(_BUFFER_BYTES)
    rests = [b""] * len(requests)  # the end of what was read, where an event may have begun
    with contextlib.ExitStack() as cleanup, select.epoll() as poll:
        connections: dict[int, tuple[int, socket.socket]] = {}
        for number, request in enumerate(requests):
            connection = cleanup.enter_context(socket.create_connection(address))
            connection.sendall(request)
            connections[connection.fileno()] = number, connection
            poll.register(connection, select.EPOLLIN)
        began = time.thread_time()
        while connections:
            for descriptor, _ in poll.poll():
                number, connection = connections[descriptor]
                rest = rests[number]
                start = len(rest)
                buffer[:start] = rest
                end = start + connection.recv_into(memoryview(buffer)[start:])
                if end == start:
                    poll.unregister(descriptor)
                    del connections[descriptor]
                    continue
                if num_events := buffer.count(_EVENT, 0, end):
                    reading.arrivals[number] += [time.perf_counter()] * num_events
                rests[number] = bytes(buffer[max(0, end - len(_EVENT) + 1) : end])
            time.sleep(LOOK_SECONDS)
        reading.processor_seconds = time.thread_time() - began
    return reading
