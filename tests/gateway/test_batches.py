"""`/v1/batches` with a fake engine: from an input file to the files that come out, and everything in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import BatchRequestCounts as RequestCounts

from core_engine import EngineDied, KeyConfig, Overloaded, Request
from core_engine.text import TextModel
from gateway.batches import attempt, service, store
from tests.gateway.batching import create, ended, jsonl, line, read, sdk
from tests.gateway.fake_engine import MODEL
from tests.gateway.raw import eventually
from tests.gateway.running import CHAT, COMPLETIONS, RunningGateway, running_gateway


@pytest.fixture(scope="module")
def keeper(text_model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = (KeyConfig.plain("one"), KeyConfig.plain("two"))
    data = str(tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch, running_gateway(text_model, data_dir=data, keys=keys) as running:
        patch.setattr(attempt, "POLL_SECONDS", 0.01)
        yield running


@pytest.fixture
def server(keeper: RunningGateway) -> RunningGateway:
    """The shared one, with an engine that says "Hi."."""
    keeper.engine.state = "ready"
    keeper.engine.script = keeper.saying("Hi.")
    keeper.engine.before_submission = None
    keeper.engine.submitted.clear()
    return keeper


def test_the_sdk_runs_a_batch(server: RunningGateway) -> None:
    client = sdk(server)
    lines = [line(number, CHAT, messages=[{"role": "user", "content": "Hello"}]) for number in range(5)]
    batch = create(client, jsonl(*lines), CHAT, metadata={"purpose": "test"})
    assert (batch.object, batch.endpoint, batch.metadata) == ("batch", CHAT, {"purpose": "test"})
    assert batch.expires_at == batch.created_at + 86_400
    batch = ended(client, batch)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 5, "completed": 5, "failed": 0}
    assert batch.error_file_id is None
    assert batch.model == MODEL
    assert batch.completed_at is not None
    results = read(client, batch.output_file_id)
    assert [result["custom_id"] for result in results] == [f"line-{number}" for number in range(5)]
    for result in results:
        assert result["error"] is None
        assert result["response"]["status_code"] == 200
        assert result["response"]["body"]["choices"][0]["message"]["content"] == "Hi."
    assert len({result["id"] for result in results}) == 5
    assert batch.usage is not None
    assert batch.usage.total_tokens == sum(result["response"]["body"]["usage"]["total_tokens"] for result in results)
    output = client.files.retrieve(str(batch.output_file_id))
    assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert next(iter(client.batches.list())).id == batch.id


def test_a_result_is_one_line_whatever_was_said(server: RunningGateway) -> None:
    """Unicode has more ends of lines than JSONL."""
    client = sdk(server)
    said = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\x1dh\x1ei\nj\rk"
    server.engine.script = server.saying(said)
    (result,) = read(client, ended(client, create(client, jsonl(line(1, max_tokens=100)))).output_file_id)
    assert result["response"]["body"]["choices"][0]["text"] == said


def test_lines_are_of_the_lowest_class(server: RunningGateway) -> None:
    client = sdk(server)
    ended(client, create(client, jsonl(line(1, priority=-100), line(2))))
    assert {(request.class_name, request.priority) for request in server.engine.submitted} == {("batch", 10)}
    assert {request.tenant for request in server.engine.submitted} == {KeyConfig.plain("one").tenant}


def test_a_line_that_is_wrong_fails_alone(server: RunningGateway) -> None:
    client = sdk(server)
    wrong = [line(1, temperature=9), line(2, stream=True), line(3, prompt=None), line(4, n=0)]
    batch = ended(client, create(client, jsonl(line(0), *wrong)))
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 5, "completed": 1, "failed": 4}
    assert [result["custom_id"] for result in read(client, batch.output_file_id)] == ["line-0"]
    errors = read(client, batch.error_file_id)
    assert [error["custom_id"] for error in errors] == ["line-1", "line-2", "line-3", "line-4"]
    assert [error["response"]["body"]["error"]["param"] for error in errors] == ["temperature", "stream", "prompt", "n"]
    assert {error["response"]["status_code"] for error in errors} == {400}


def test_an_unknown_model_is_an_error_of_the_file(server: RunningGateway) -> None:
    client = sdk(server)
    batch = ended(client, create(client, jsonl(line(0, model="gpt-6"), line(1, model="gpt-6"))))
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [(error.code, error.param) for error in batch.errors.data or []] == [("model_not_found", "body.model")]


def test_a_model_that_went_away_is_waited_for(server: RunningGateway) -> None:
    client = sdk(server)
    server.engine.state = "restarting"
    batch = create(client, jsonl(line(0)))
    assert eventually(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    server.gateway.models.remove(server.model)
    server.engine.state = "ready"
    try:
        assert client.batches.retrieve(batch.id).status == "in_progress"
    finally:
        server.gateway.models.append(server.model)
    assert ended(client, batch).request_counts == RequestCounts(total=1, completed=1, failed=0)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"endpoint": "/v1/images/generations"}, "endpoint"),
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-unknown"}, "input_file_id"),
        ({"input_file_id": None}, "input_file_id"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
    ],
)
def test_wrong_fields_are_named(server: RunningGateway, body: dict[str, Any], param: str) -> None:
    file = sdk(server).files.create(file=("in.jsonl", jsonl(line(1))), purpose="batch")
    good = {"input_file_id": file.id, "endpoint": COMPLETIONS, "completion_window": "24h"}
    headers = {"authorization": "Bearer one"}
    response = server.http.post("/v1/batches", json={**good, **body}, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_full_engine_is_never_the_fault_of_a_line(server: RunningGateway) -> None:
    client = sdk(server)
    server.engine.script = server.saying("", refusal=Overloaded("full", "queue_full", retry_after_seconds=0.01))
    batch = create(client, jsonl(*map(line, range(3))))
    assert eventually(lambda: len(server.engine.submitted) > 10)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    server.engine.script = server.saying("Hi.")
    batch = ended(client, batch)
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 3, "failed": 0}


def test_an_engine_that_dies_is_never_the_fault_of_a_line(server: RunningGateway) -> None:
    client = sdk(server)
    dying = server.saying("Hi.", failure=EngineDied("killed"), failure_after=1)
    scripts = iter((dying, server.saying("Hi.")))
    server.engine.before_submission = lambda _: setattr(server.engine, "script", next(scripts))
    batch = ended(client, create(client, jsonl(line(1))))
    assert len(server.engine.submitted) == 2
    assert read(client, batch.output_file_id)[0]["response"]["body"]["choices"][0]["text"] == "Hi."


def test_a_line_that_ends_without_a_result_runs_again(server: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong with it, its batch has time left, and so it isn't over."""
    monkeypatch.setattr(service, "_FIRST_RETRY_SECONDS", 0.01)
    client = sdk(server)
    faults = iter((asyncio.CancelledError(),))

    def fail_once(_: Request) -> None:
        for fault in faults:
            raise fault

    server.engine.before_submission = fail_once
    batch = ended(client, create(client, jsonl(line(1))))
    assert batch.status == "completed"
    assert batch.request_counts == RequestCounts(total=1, completed=1, failed=0)


def test_a_line_that_kills_the_engine_is_given_up_alone(server: RunningGateway) -> None:
    client = sdk(server)
    poisoned = server.text_model.encode("poison", add_special_tokens=False)
    good, bad = server.saying("Hi."), EngineDied("killed")

    def choose(prompt: list[int]) -> None:
        running = [request for request in server.engine.submitted if request.id in server.engine.running]
        poison = prompt == poisoned or any(request.prompt_token_ids == poisoned for request in running)
        server.engine.script = server.saying("Hi.", failure=bad) if poison else good

    server.engine.before_submission = lambda request: choose(request.prompt_token_ids)
    batch = ended(client, create(client, jsonl(line(1), line(2, prompt="poison"), line(3))))
    assert [result["custom_id"] for result in read(client, batch.output_file_id)] == ["line-1", "line-3"]
    (error,) = read(client, batch.error_file_id)
    assert (error["custom_id"], error["response"]["body"]["error"]["code"]) == ("line-2", "engine_died")


def test_lines_leave_seats_to_others(server: RunningGateway) -> None:
    """However many lines there are, others find a seat, and an empty queue before it."""
    client = sdk(server)
    server.engine.script = server.saying("Hi.", hold_after=1)
    batch = create(client, jsonl(*map(line, range(200))))
    assert eventually(lambda: len(server.engine.submitted) == 56)  # 64 seats, an eighth of them spared
    metrics = server.http.get("/metrics", headers={"authorization": "Bearer one"}).text
    assert 'jitney_batch_lines_running{model_name="tiny"} 56.0' in metrics
    assert 'jitney_batch_lines_waiting{model_name="tiny"} 144.0' in metrics
    server.engine.script = server.saying("Hi.")
    assert sdk(server, "two").completions.create(model=MODEL, prompt="Hello").choices[0].text == "Hi."
    assert len(server.engine.submitted) == 57
    client.batches.cancel(batch.id)
    ended(client, batch)


def test_tenants_take_turns(server: RunningGateway) -> None:
    one, two = sdk(server, "one"), sdk(server, "two")
    tenant = KeyConfig.plain("two").tenant
    answer, hold = server.saying("Hi."), server.saying("Hi.", hold_after=1)

    def choose(request: Request) -> None:
        """Once all lines of the short batch have boarded, those of the long one stay, so that it cannot end."""
        short_is_in = sum(earlier.tenant == tenant for earlier in server.engine.submitted) == 5
        server.engine.script = hold if short_is_in and request.tenant != tenant else answer

    server.engine.before_submission = choose
    server.engine.state = "restarting"  # until both batches wait
    long = create(one, jsonl(*map(line, range(1000))))
    short = create(two, jsonl(*map(line, range(5))))
    assert eventually(lambda: one.batches.retrieve(long.id).status == "in_progress")
    assert eventually(lambda: two.batches.retrieve(short.id).status == "in_progress")
    server.engine.state = "ready"
    assert ended(two, short).status == "completed"
    assert one.batches.cancel(long.id).status == "cancelling"
    ended(one, long)


def test_a_cancelled_batch_keeps_what_it_has(server: RunningGateway) -> None:
    client = sdk(server)
    batch = create(client, jsonl(*map(line, range(3))))
    done = ended(client, batch)
    assert client.batches.cancel(batch.id) == done

    server.engine.script = server.saying("Hi.", hold_after=1)
    batch = create(client, jsonl(*map(line, range(100))))
    assert eventually(lambda: len(server.engine.running) == 56)
    cancelling = client.batches.cancel(batch.id)
    assert (cancelling.status, cancelling.cancelling_at is None) == ("cancelling", False)
    batch = ended(client, batch)
    assert batch.status == "cancelled"
    assert not server.engine.running
    errors = read(client, batch.error_file_id)
    assert [error["custom_id"] for error in errors] == [f"line-{number}" for number in range(100)]
    assert {error["error"]["code"] for error in errors} == {"batch_cancelled"}
    assert {error["response"] for error in errors} == {None}


def test_a_batch_belongs_to_its_key(server: RunningGateway) -> None:
    mine, theirs = sdk(server, "one"), sdk(server, "two")
    batch = ended(mine, create(mine, jsonl(line(1))))
    for ask in (theirs.batches.retrieve, theirs.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            ask(batch.id)
    with pytest.raises(openai.NotFoundError):
        theirs.files.content(str(batch.output_file_id))
    assert batch.id not in [found.id for found in theirs.batches.list()]


def test_batches_come_in_pages(server: RunningGateway) -> None:
    client = sdk(server, "two")
    made = [ended(client, create(client, jsonl(line(1)))).id for _ in range(3)]
    page = client.batches.list(limit=2)
    assert ([batch.id for batch in page.data], page.has_more) == ([made[2], made[1]], True)
    assert [batch.id for batch in client.batches.list(limit=1)][:3] == made[::-1]


def test_an_input_file_stays_while_it_is_read(server: RunningGateway) -> None:
    client = sdk(server)
    server.engine.script = server.saying("Hi.", hold_after=1)
    batch = create(client, jsonl(line(1)))
    with pytest.raises(openai.ConflictError):
        client.files.delete(batch.input_file_id)
    client.batches.cancel(batch.id)
    ended(client, batch)
    assert client.files.delete(batch.input_file_id).deleted


def test_unfinished_batches_are_bounded(server: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_UNFINISHED", 4)
    client = sdk(server)
    server.engine.script = server.saying("Hi.", hold_after=1)
    file = client.files.create(file=("in.jsonl", jsonl(line(1))), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": COMPLETIONS, "completion_window": "24h"}
    headers = {"authorization": "Bearer one"}
    answers = [server.http.post("/v1/batches", json=body, headers=headers) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]
    assert "retry-after" in answers[-1].headers
    for answer in answers[:-1]:
        client.batches.cancel(answer.json()["id"])
    for answer in answers[:-1]:
        batch = client.batches.retrieve(answer.json()["id"])
        assert ended(client, batch).status == "cancelled"


def test_two_servers_never_run_the_same_batches(text_model: TextModel, tmp_path: Path) -> None:
    with (
        running_gateway(text_model, data_dir=str(tmp_path)) as first,
        running_gateway(text_model, data_dir=str(tmp_path)) as second,
    ):
        assert first.http.get("/v1/batches").status_code == 200
        assert second.http.get("/v1/batches").json()["error"]["code"] == "data_directory_in_use"
        assert second.complete().status_code == 200
