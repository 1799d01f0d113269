"""`/v1/models` as Anthropic's SDK reads it, which says so by a header."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import types as sdk_types

from core_engine import KeyConfig
from core_engine.text import TextModel
from tests.gateway.anthropic_api import client_of, error
from tests.gateway.running import RunningGateway, running_gateway

HEADERS = {"anthropic-version": "2023-06-01"}
NAMES = ["tiny", "a", "org/b", "c"]


@pytest.fixture(scope="module")
def named(text_model: TextModel) -> Iterator[RunningGateway]:
    """A model with aliases, behind a key."""
    keys = (KeyConfig.plain("sk-a"),)
    with running_gateway(text_model, {"aliases": dict.fromkeys(NAMES[1:], "tiny")}, keys=keys) as running:
        yield running


def get(server: RunningGateway, path: str, key: str = "sk-a", **query: Any) -> httpx.Response:
    return server.http.get(path, params=query, headers={**HEADERS, "x-api-key": key})


def test_the_sdk_lists_page_by_page(named: RunningGateway) -> None:
    with client_of(named, "sk-a") as client:
        page = client.models.list(limit=3)
        assert (page.first_id, page.last_id, page.has_more) == ("tiny", "org/b", True)
        assert [model.id for model in page] == NAMES
        assert [model.id for model in client.models.list(before_id="c", limit=2).data] == ["a", "org/b"]
        assert [model.id for model in client.models.list(after_id="c")] == []


def test_a_model_has_the_type_of_the_sdk(named: RunningGateway) -> None:
    for path in ("/v1/models/org/b", "/models/org/b"):
        body = get(named, path)
        model = sdk_types.ModelInfo.model_validate_json(body.text, strict=True)
        assert (model.type, model.id, model.display_name) == ("model", "org/b", "org/b")
        assert int(model.created_at.timestamp()) == named.model.created
        assert model.max_input_tokens == 2048


def test_without_the_header_it_is_openais(named: RunningGateway) -> None:
    body = named.http.get("/v1/models", headers={"x-api-key": "sk-a"}).json()
    assert body["object"] == "list"
    assert body["data"][0]["object"] == "model"


def test_errors_are_in_the_same_form(named: RunningGateway) -> None:
    assert error(get(named, "/v1/models/none"), 404)["type"] == "not_found_error"
    assert error(get(named, "/v1/models", "sk-b"), 401)["type"] == "authentication_error"
    assert error(named.http.post("/v1/models", headers={**HEADERS, "x-api-key": "sk-a"}), 405)
    for query in ({"limit": 0}, {"limit": "x"}, {"limit": 1001}, {"after_id": "none"}, {"before_id": "none"}):
        (name,) = query
        assert f"'{name}'" in error(get(named, "/v1/models", **query), 400)["message"]
    with client_of(named, "sk-a") as client, pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("none")
