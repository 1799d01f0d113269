"""Parts of streams that are written straight to the connection: what a client gets is the same as by the long way."""

from __future__ import annotations

import socket

import pytest

from gateway import stream
from gateway.direct import DirectWriter
from tests.gateway.events import read_events
from tests.gateway.raw import eventually, head
from tests.gateway.running import CHAT, RunningGateway

HELLO = [{"role": "user", "content": "Hello"}]
LONG = "word " * 300


def test_the_long_way_gives_the_same(server: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    server.engine.script = server.saying("one two three, né ☃")

    def streams() -> list[tuple[list[str], str | None, bool]]:
        usage = {"stream_options": {"include_usage": True}}
        answers = [server.chat(stream=True, **usage), server.complete(stream=True, stop="three", **usage)]
        events = [read_events(answer.content) for answer in answers]
        return [(each.texts(), each.finish_reason(), each.done) for each in events]

    short = streams()
    monkeypatch.setattr(stream, "direct_writer", lambda scope: DirectWriter(None))
    assert streams() == short


def test_a_slow_reader_is_waited_for_and_gets_all(server: RunningGateway) -> None:
    server.engine.script = server.saying(LONG)
    body = {"model": "tiny", "messages": HELLO, "stream": True, "n": 4, "logprobs": True, "top_logprobs": 20}
    request = server.http.build_request("POST", CHAT, json=body).content
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", server.port))
        length = str(len(request))
        lines = head("POST", CHAT, content_type="application/json", content_length=length, connection="close")
        connection.sendall(lines + request)
        open_ones = server.server.server_state.connections
        assert eventually(lambda: any(each.flow.write_paused for each in open_ones))  # type: ignore[union-attr]
        assert server.gateway.is_busy
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        raw = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    events = read_events(unchunked(raw))
    assert events.done
    assert {events.text(index) for index in range(4)} == {LONG}


def unchunked(raw: bytes) -> bytes:
    """The body of a response in chunks, which must be whole."""
    place, pieces = raw.index(b"\r\n\r\n") + 4, []
    while True:
        end = raw.index(b"\r\n", place)
        place, count = end + 2, int(raw[place:end], 16)
        pieces.append(raw[place : place + count])
        assert raw[place + count : place + count + 2] == b"\r\n"
        place += count + 2
        if not count:
            assert place == len(raw)
            return b"".join(pieces)
