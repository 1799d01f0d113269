"""Batches and files whose time passes, in a server that runs or before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import openai
import pytest
from openai.types import Batch
from openai.types import BatchRequestCounts as RequestCounts

from core_engine.text import TextModel
from gateway.batches import following
from tests.gateway.batching import create, ended, jsonl, line, num_completed, read, sdk
from tests.gateway.raw import eventually
from tests.gateway.running import RunningGateway, running_gateway


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts the clock of this process to a time, in Unix seconds; it goes on from there."""
    tell = time.time

    def set_clock(to: float) -> None:
        ahead = to - tell()
        monkeypatch.setattr(time, "time", lambda: tell() + ahead)

    return set_clock


def create_held(server: RunningGateway, client: openai.OpenAI) -> Batch:
    """A batch of three lines: the first and the last have ended, the second runs and won't end."""
    held = server.text_model.encode("hold", add_special_tokens=False)
    hold, answer = server.saying("Hi.", hold_after=1), server.saying("Hi.")
    server.engine.before_submission = lambda request: setattr(
        server.engine, "script", hold if request.prompt_token_ids == held else answer
    )
    batch = create(client, jsonl(line(1), line(2, prompt="hold"), line(3)))
    assert eventually(lambda: num_completed(client, batch) == 2 and len(server.engine.running) == 1)
    return batch


def check_expired(client: openai.OpenAI, batch: Batch) -> None:
    """A batch that was held is over, and keeps what it had."""
    batch = ended(client, batch)
    assert (batch.status, batch.expired_at is None) == ("expired", False)
    assert batch.request_counts == RequestCounts(total=3, completed=2, failed=0)
    assert [result["custom_id"] for result in read(client, batch.output_file_id)] == ["line-1", "line-3"]
    (error,) = read(client, batch.error_file_id)
    assert (error["custom_id"], error["error"]["code"]) == ("line-2", "batch_expired")


def test_a_batch_that_expires_while_a_line_runs_keeps_what_it_has(
    text_model: TextModel, tmp_path: Path, set_clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CLOCK_POLL_SECONDS", 0.01)
    with running_gateway(text_model, data_dir=str(tmp_path)) as server, sdk(server) as client:
        batch = create_held(server, client)
        (held,) = server.engine.running
        set_clock(batch.expires_at)
        check_expired(client, batch)
        assert (server.engine.cancelled, server.engine.running) == ([held], set())


def test_a_batch_that_expires_while_no_server_runs_keeps_what_it_has(
    text_model: TextModel, tmp_path: Path, set_clock: Callable[[float], None]
) -> None:
    with running_gateway(text_model, data_dir=str(tmp_path)) as server, sdk(server) as client:
        batch = create_held(server, client)
    set_clock(batch.expires_at)
    with running_gateway(text_model, data_dir=str(tmp_path)) as server, sdk(server) as client:
        check_expired(client, batch)
        assert not server.engine.submitted


def test_what_is_old_is_removed(text_model: TextModel, tmp_path: Path, set_clock: Callable[[float], None]) -> None:
    """Files and batches go when their time is over, those of the last run too; the content goes with them."""
    with running_gateway(text_model, data_dir=str(tmp_path), file_retention_days=1) as server, sdk(server) as client:
        batch = ended(client, create(client, jsonl(line(1))))
        assert len(client.files.list().data) == 2
        set_clock(time.time() + 1.1 * 86_400)
        assert client.files.list().data == []
        with pytest.raises(openai.NotFoundError):
            client.files.content(str(batch.output_file_id))
        assert len(list((tmp_path / "files").iterdir())) == 2
    with running_gateway(text_model, data_dir=str(tmp_path), file_retention_days=1) as server, sdk(server) as client:
        assert eventually(lambda: list((tmp_path / "files").iterdir()) == [])
        assert eventually(lambda: client.batches.list().data == [])
