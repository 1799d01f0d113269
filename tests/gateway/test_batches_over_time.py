"""Batches and files of yesterday, which a server finds when it starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import openai
import pytest

from core_engine.text import TextModel
from tests.gateway.batching import create, ended, jsonl, line, num_completed, read, sdk
from tests.gateway.raw import eventually
from tests.gateway.running import running_gateway


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts the clock of this process to a time, in Unix seconds; it goes on from there."""
    tell = time.time

    def set_clock(to: float) -> None:
        ahead = to - tell()
        monkeypatch.setattr(time, "time", lambda: tell() + ahead)

    return set_clock


def test_a_batch_whose_time_is_over_keeps_what_it_has(
    text_model: TextModel, tmp_path: Path, set_clock: Callable[[float], None]
) -> None:
    with running_gateway(text_model, data_dir=str(tmp_path)) as server, sdk(server) as client:
        kept = server.text_model.encode("hold", add_special_tokens=False)
        hold, answer = server.saying("Hi.", hold_after=1), server.saying("Hi.")
        server.engine.before_submission = lambda request: setattr(
            server.engine, "script", hold if request.prompt_token_ids == kept else answer
        )
        batch = create(client, jsonl(line(1), line(2, prompt="hold"), line(3)))
        assert eventually(lambda: num_completed(client, batch) == 2)
    set_clock(batch.expires_at + 1)
    with running_gateway(text_model, data_dir=str(tmp_path)) as server, sdk(server) as client:
        server.engine.script = server.saying("Hi.", hold_after=1)
        batch = ended(client, batch)
        assert (batch.status, batch.expired_at is None) == ("expired", False)
        assert [result["custom_id"] for result in read(client, batch.output_file_id)] == ["line-1", "line-3"]
        (error,) = read(client, batch.error_file_id)
        assert (error["custom_id"], error["error"]["code"]) == ("line-2", "batch_expired")
        assert not server.engine.running


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
