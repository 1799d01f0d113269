"""Responses that are kept: read, listed, gone on from, worked on in the background, and for nobody else."""

from __future__ import annotations

from contextlib import ExitStack

import openai
import pytest
from openai.types import responses as sdk_types

from core_engine import EngineDied, KeyConfig
from core_engine.text import TextModel
from tests.gateway.fake_engine import MODEL
from tests.gateway.raw import eventually
from tests.gateway.respond import RESPONSES, ask, client_of, error, prompt, respond
from tests.gateway.running import RunningGateway, running_gateway


def test_the_sdk_creates_reads_lists_and_deletes(sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="Hello")
    assert created.output_text == "Hi."
    assert sdk.responses.retrieve(created.id) == created
    (item,) = sdk.responses.input_items.list(created.id).data
    assert isinstance(item, sdk_types.ResponseInputMessageItem)
    assert (item.role, item.content[0].type) == ("user", "input_text")
    assert sdk.responses.cancel(created.id) == created  # it has ended already
    sdk.responses.delete(created.id)
    for call in (sdk.responses.retrieve, sdk.responses.cancel, sdk.responses.delete, sdk.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(created.id)


def test_a_conversation_goes_on(server: RunningGateway) -> None:
    first = respond(server, input="My name is Ann.", instructions="Only once.")
    second = respond(server, input="What is it?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    asked = prompt(server)
    assert asked.index("My name is Ann.") < asked.index("Hi.") < asked.index("What is it?")
    assert "Only once." not in asked
    respond(server, input="Sure?", previous_response_id=second["id"])
    assert prompt(server).count("Hi.") == 2
    listed = server.http.get(f"{RESPONSES}/{second['id']}/input_items", params={"order": "asc"}).json()["data"]
    assert [item["role"] for item in listed] == ["user", "assistant", "user"]


def test_a_conversation_goes_on_though_its_beginning_was_deleted(server: RunningGateway) -> None:
    first = respond(server, input="My name is Ann.")
    second = respond(server, input="What is it?", previous_response_id=first["id"])
    assert server.http.delete(f"{RESPONSES}/{first['id']}").json()["deleted"] is True
    respond(server, previous_response_id=second["id"])
    assert "My name is Ann." in prompt(server)
    gone = error(ask(server, previous_response_id=first["id"]), 400)
    assert (gone["code"], gone["param"]) == ("previous_response_not_found", "previous_response_id")


def test_what_is_not_stored_is_not_there(server: RunningGateway) -> None:
    response = respond(server, store=False)
    assert response["store"] is False
    assert error(server.http.get(f"{RESPONSES}/{response['id']}"), 404)["code"] == "response_not_found"


def test_input_items_come_in_pages(server: RunningGateway, sdk: openai.OpenAI) -> None:
    items = [{"role": "user", "content": str(number)} for number in range(5)]
    response = respond(server, input=items)
    for order, expected in (("asc", "01234"), ("desc", "43210")):
        pages = sdk.responses.input_items.list(response["id"], limit=2, order=order)  # type: ignore[arg-type]
        assert "".join(item.content[0].text for item in pages) == expected  # type: ignore[union-attr]
    path = f"{RESPONSES}/{response['id']}/input_items"
    assert error(server.http.get(path, params={"after": "msg_x"}), 400)["param"] == "after"
    assert error(server.http.get(path, params={"limit": "0"}), 400)["param"] == "limit"


def test_a_background_response_is_read_when_it_is_done(server: RunningGateway, sdk: openai.OpenAI) -> None:
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    assert created.status == "in_progress"
    assert eventually(lambda: sdk.responses.retrieve(created.id).status == "completed")
    assert sdk.responses.retrieve(created.id).output_text == "Hi."


def test_a_background_response_can_be_cancelled(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying("one two three", hold_after=2)
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    assert error(ask(server, previous_response_id=created.id), 400)["param"] == "previous_response_id"
    assert sdk.responses.cancel(created.id).status == "cancelled"
    assert sdk.responses.retrieve(created.id).status == "cancelled"
    assert eventually(lambda: not server.engine.running and not server.gateway.is_busy)


def test_deleting_a_background_response_ends_it(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying("one two three", hold_after=2)
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    sdk.responses.delete(created.id)
    assert eventually(lambda: not server.engine.running)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(created.id)


def test_a_background_response_that_fails_says_so(server: RunningGateway, sdk: openai.OpenAI) -> None:
    server.engine.script = server.saying("one two", failure=EngineDied("gone"), failure_after=1)
    created = sdk.responses.create(model=MODEL, input="Hello", background=True)
    assert eventually(lambda: sdk.responses.retrieve(created.id).status == "failed")
    failure = sdk.responses.retrieve(created.id).error
    assert failure is not None
    assert failure.code == "server_error"


def test_responses_belong_to_their_tenant(text_model: TextModel) -> None:
    keys = tuple(KeyConfig(key=key, tenant=tenant) for key, tenant in (("a1", "a"), ("a2", "a"), ("b", "b")))
    with running_gateway(text_model, keys=keys) as server, ExitStack() as clients:
        owner, colleague, other = (clients.enter_context(client_of(server, key)) for key in ("a1", "a2", "b"))
        mine = owner.responses.create(model=MODEL, input="Hello")
        assert colleague.responses.retrieve(mine.id) == mine
        for call in (
            other.responses.retrieve,
            other.responses.cancel,
            other.responses.delete,
            other.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError):
                call(mine.id)
        with pytest.raises(openai.BadRequestError):
            other.responses.create(model=MODEL, input="Hello", previous_response_id=mine.id)
        assert owner.responses.retrieve(mine.id) == mine
