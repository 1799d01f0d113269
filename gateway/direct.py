"""A short way for the parts of a stream, of which there are many: from the response straight to the connection.

On the long way, ASGI's, three coroutines hand on a dict to do what is one call here.
"""

from __future__ import annotations

import weakref
from typing import Any

from litestar.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_EXTENSION = "jitney.cycle"


class DirectWriter:
    """Writes parts of the body of one response to its connection, while nobody has to wait for a slow reader.

    Without a cycle it is never ready.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle | None) -> None:
        self._cycle = cycle

    def ready(self) -> bool:
        """Whether a part can be written now; else `send` must, which may mean to wait."""
        cycle = self._cycle
        return (
            cycle is not None
            and not cycle.flow.write_paused
            and not cycle.disconnected
            and cycle.chunked_encoding is True
        )

    def write(self, part: bytes) -> None:
        """Write a part, if there is any: an empty chunk would end the body. Only while it is `ready`."""
        assert self._cycle is not None
        if part:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))


def offer_writing(cycle: RequestResponseCycle) -> None:
    """Let the application write parts of this response's body by itself."""
    if cycle.scope["method"] != "HEAD":
        # The cycle holds the scope: with a reference to it as well, only the collector would free them.
        cycle.scope["extensions"] = {_EXTENSION: {"reference": weakref.ref(cycle)}}


def direct_writer(scope: Scope) -> DirectWriter:
    """The short way of the response that is answered."""
    extensions: dict[str, Any] = scope.get("extensions") or {}
    cycle: RequestResponseCycle | None = extensions[_EXTENSION]["reference"]() if _EXTENSION in extensions else None
    return DirectWriter(cycle)
