"""A short way for the parts of a stream, of which there are many: from the response straight to the connection.

On the long way, ASGI's, three coroutines hand on a dict to do what is one call here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from litestar.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_EXTENSION = "jitney.cycle"

Write = Callable[[bytes], bool]


def offer_writing(cycle: RequestResponseCycle) -> None:
    """Let the application write parts of this response's body by itself."""
    if cycle.scope["method"] != "HEAD":
        # The cycle holds the scope: with a reference to it as well, only the collector would free them.
        cycle.scope["extensions"] = {_EXTENSION: {"reference": weakref.ref(cycle)}}


def direct_writing(scope: Scope) -> Write:
    """What takes a part of the body of the response that is answered.

    It answers False where it has not taken it: then `send` must, which may mean to wait for a slow reader.
    """
    extensions: dict[str, Any] = scope.get("extensions") or {}
    cycle: RequestResponseCycle | None = extensions[_EXTENSION]["reference"]() if _EXTENSION in extensions else None
    if cycle is None:
        return lambda part: False
    flow, connection = cycle.flow, cycle.transport

    def write(part: bytes) -> bool:
        # An empty chunk would end the body.
        if not part or flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        connection.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True

    return write
