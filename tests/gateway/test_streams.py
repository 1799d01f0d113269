"""Streams that go wrong, fall silent or are left; and work that nobody waits for any more."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Iterator

import pytest

from core_engine import EngineDied, EngineUnavailable, FirstTokenTiming, InvalidRequest, Overloaded
from core_engine.text import TextModel
from tests.gateway.events import read_events
from tests.gateway.raw import eventually, json_post
from tests.gateway.running import CHAT, COMPLETIONS, RunningGateway, running_gateway

HELLO = [{"role": "user", "content": "Hello"}]


def test_headers_let_nobody_buffer(server: RunningGateway) -> None:
    headers = server.chat(stream=True).headers
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in headers
    assert "content-length" not in headers


def test_headers_tell_what_came_before_the_first_token(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two", timing=FirstTokenTiming(0.5, 0.25))
    assert server.chat(stream=True).headers["server-timing"] == "queue;dur=500.0, prefill;dur=250.0"
    assert server.complete(stream=True).headers["server-timing"] == "queue;dur=500.0, prefill;dur=250.0"


def test_a_heartbeat_before_the_first_token_has_no_timing(text_model: TextModel) -> None:
    with running_gateway(text_model, heartbeat_seconds=0.01) as server:
        timing = FirstTokenTiming(0.5, 0.25)
        server.engine.script = server.saying("one", timing=timing, pause_seconds=0.1, together=10)
        answer = server.chat(stream=True)
    assert "server-timing" not in answer.headers
    assert read_events(answer.content).done


def test_tokens_are_sent_as_they_come(server: RunningGateway) -> None:
    server.engine.script = server.saying("one two three", hold_after=2)
    body = {"model": "tiny", "messages": HELLO, "stream": True}
    with server.http.stream("POST", CHAT, json=body) as response:
        received = b""
        for data in response.iter_raw():
            received += data
            if received.count(b'"content":') == 3:
                break
    assert b"[DONE]" not in received


@pytest.mark.parametrize("after", [1, 2])
def test_an_error_in_a_stream_is_its_last_event(server: RunningGateway, after: int) -> None:
    server.engine.script = server.saying("one two", failure=EngineDied("of /var/x"), failure_after=after)
    events = read_events(server.chat(stream=True).content)
    assert not events.done
    *pieces, last = events.chunks
    assert pieces
    assert last["error"]["code"] == "engine_died"
    assert "/var" not in last["error"]["message"]
    assert eventually(lambda: not server.engine.running)


def test_an_error_before_the_first_token_is_a_status(server: RunningGateway) -> None:
    server.engine.script = server.saying("one", failure=EngineDied("x"))
    for stream in (True, False):
        response = server.chat(stream=stream)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "engine_died"
        assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_dies_is_told_of_once_for_all_prompts(
    server: RunningGateway, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    server.engine.script = server.saying("one two", failure=EngineDied("x"), failure_after=2)
    response = server.complete(prompt=["a", "b", "c"], stream=stream)
    assert response.text.count("engine_died") == 1
    assert eventually(lambda: not server.gateway.is_busy)
    gc.collect()  # of what nobody has looked at asyncio complains when it goes
    assert not caplog.records


def test_a_failed_sequence_is_an_error_and_ends_its_siblings(server: RunningGateway) -> None:
    server.engine.script = server.saying("a", "a longer one", error="logits of /usr/lib are not finite")
    response = server.chat(n=2)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "engine_error"
    assert "/usr" not in response.text
    assert eventually(lambda: not server.engine.running)
    events = read_events(server.chat(n=2, stream=True).content)
    assert events.chunks[-1]["error"]["code"] == "engine_error"
    assert not events.done


@pytest.mark.parametrize("stream", [True, False])
def test_a_full_queue_is_a_429_that_says_when_to_come_back(server: RunningGateway, stream: bool) -> None:
    refusal = Overloaded("too many wait", "queue_full", 2.5, {"limit-requests": "5"})
    server.engine.script = server.saying("x", refusal=refusal)
    response = server.chat(stream=stream)
    assert response.status_code == 429
    assert response.json()["error"] == {
        "message": "too many wait",
        "type": "rate_limit_error",
        "param": None,
        "code": "queue_full",
    }
    assert response.headers["retry-after"] == "3"
    assert response.headers["retry-after-ms"] == "2500"
    assert response.headers["x-ratelimit-limit-requests"] == "5"


@pytest.mark.parametrize("stream", [True, False])
def test_what_the_engine_refuses_for_good_is_a_400(server: RunningGateway, stream: bool) -> None:
    refusal = InvalidRequest("the prompt is too long", "context_length_exceeded", "prompt")
    server.engine.script = server.saying("x", refusal=refusal)
    response = server.complete(stream=stream)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_an_engine_that_is_gone_is_a_503(server: RunningGateway) -> None:
    server.engine.script = server.saying("x", refusal=EngineUnavailable("it failed in /usr/lib"))
    response = server.chat()
    assert response.status_code == 503
    assert "/usr" not in response.text
    assert "retry-after" in response.headers


def test_one_refusal_of_many_prompts_cancels_the_rest(server: RunningGateway) -> None:
    script = server.saying("x")
    submit = server.engine.submit

    async def submit_all_but_the_last(request):  # type: ignore[no-untyped-def]
        script.refusal = Overloaded("no", "queue_full", 1) if request.id.endswith("-2") else None
        return await submit(request)

    server.engine.script = script
    server.engine.submit = submit_all_but_the_last  # type: ignore[method-assign]
    try:
        response = server.complete(prompt=["a", "b", "c"])
    finally:
        del server.engine.submit
    assert response.status_code == 429
    assert len(server.engine.cancelled) == 2
    assert not server.engine.running


def test_silence_is_filled_with_comments(text_model: TextModel) -> None:
    with running_gateway(text_model, heartbeat_seconds=0.02) as running:
        running.engine.script = running.saying("one two", hold_after=2)
        body = {"model": "tiny", "messages": HELLO, "stream": True}
        with running.http.stream("POST", CHAT, json=body) as response:
            received = b""
            for data in response.iter_raw():
                received += data
                if received.count(b": still here\n\n") == 3:
                    break
        events = read_events(received)
        assert events.comments == 3
        assert events.text() == "on"


def test_a_stream_starts_with_a_comment_where_the_first_token_is_late(text_model: TextModel) -> None:
    with running_gateway(text_model, heartbeat_seconds=0.02) as running:
        running.engine.script = running.saying("one", hold_after=0)
        body = {"model": "tiny", "messages": HELLO, "stream": True}
        with running.http.stream("POST", CHAT, json=body) as response:
            assert response.status_code == 200
            assert next(response.iter_raw()) == b": still here\n\n"


def test_an_error_after_a_comment_is_an_event(text_model: TextModel) -> None:
    with running_gateway(text_model, heartbeat_seconds=0.01) as running:
        running.engine.script = running.saying("one", failure=EngineDied("gone"), pause_seconds=0.1)
        response = running.chat(stream=True)
    assert response.status_code == 200
    events = read_events(response.content)
    assert events.comments >= 1
    assert [chunk["error"]["code"] for chunk in events.chunks] == ["engine_died"]
    assert not events.done


def hang_up(server: RunningGateway, request: bytes, *, after_bytes: bool, reset: bool) -> None:
    with server.connect() as connection:
        connection.sendall(request)
        if after_bytes:
            assert connection.recv(1)
        else:
            assert eventually(lambda: bool(server.engine.submitted))
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def requests(stream: bool) -> Iterator[tuple[bytes, int]]:
    """A request and the number of engine requests that it becomes."""
    yield json_post(CHAT, messages=HELLO, stream=stream), 1
    yield json_post(CHAT, messages=HELLO, stream=stream, n=3), 1
    yield json_post(COMPLETIONS, prompt=["a", "b"], stream=stream), 2


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("hold_acceptance", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_work(
    server: RunningGateway, stream: bool, hold_acceptance: bool, reset: bool
) -> None:
    for request, count in requests(stream):
        server.engine.submitted.clear()
        server.engine.cancelled.clear()
        server.engine.script = server.saying("x" * 50, hold_after=1, hold_acceptance=hold_acceptance)
        hang_up(server, request, after_bytes=stream and not hold_acceptance, reset=reset)
        assert eventually(lambda expected=count: len(server.engine.cancelled) == expected)  # type: ignore[misc]
        assert eventually(lambda: not server.gateway.is_busy)
        assert not server.engine.running


def test_a_client_that_leaves_while_its_prompt_is_read_never_reaches_the_engine(server: RunningGateway) -> None:
    import threading

    release = threading.Event()
    workers = server.gateway.workers
    blockers = [workers._pool.submit(release.wait) for _ in range(server.settings.text_workers)]
    try:
        with server.connect() as connection:
            connection.sendall(json_post(CHAT, messages=HELLO))
            assert eventually(lambda: server.gateway.is_busy)
        assert eventually(lambda: not server.gateway.is_busy)
    finally:
        release.set()
        for blocker in blockers:
            blocker.result()
    assert server.chat().status_code == 200
    assert len(server.engine.submitted) == 1


def test_readers_of_prompts_are_bounded(text_model: TextModel) -> None:
    import threading

    with running_gateway(text_model, text_workers=1, max_waiting_texts=1) as running:
        release = threading.Event()
        blocker = running.gateway.workers._pool.submit(release.wait)
        with running.connect() as connection:
            connection.sendall(json_post(CHAT, messages=HELLO))
            try:
                assert eventually(lambda: running.gateway.is_busy)
                response = running.chat()
            finally:
                release.set()
                blocker.result()
        assert response.status_code == 429
        assert response.json()["error"]["code"] == "text_queue_full"
        assert response.headers["retry-after"] == "1"
