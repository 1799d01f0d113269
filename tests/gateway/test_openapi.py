"""The OpenAPI document says what the server does: the same routes, what they take, and what they answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from core_engine import KeyConfig
from core_engine.text import TextModel
from gateway.cli import main
from gateway.openapi.document import describe
from gateway.openapi.endpoint import Content, Endpoint
from gateway.openapi.endpoints import ENDPOINTS
from tests.gateway.described import Described
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.test_every_route import routes_of

ADMIN_KEY = "sk-admin"
CALL = 'I look. <tool_call>\n{"name": "weather", "arguments": {"town": "Oslo"}}\n</tool_call>'
WEATHER = {"type": "object", "properties": {"town": {"type": "string"}}}
POSTED = [endpoint for endpoint in ENDPOINTS if endpoint.request is not None]
NULLABLE = [endpoint for endpoint in POSTED if endpoint.family not in {"Admin", "Files"}]
STREAMED = [
    (endpoint, content)
    for endpoint in ENDPOINTS
    for answer in endpoint.answers.values()
    for content in answer.contents
    if content.events is not None
]


@pytest.fixture(scope="module")
def described() -> Described:
    return Described(describe(with_admin=True))


@pytest.fixture(scope="module")
def open_gateway(text_model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Everything is there, and the model has the name that the examples use."""
    with running_gateway(
        text_model,
        {"aliases": {"smollm2": "tiny"}, "tool_parser": "hermes"},
        admin_key=ADMIN_KEY,
        data_dir=str(tmp_path_factory.mktemp("data")),
    ) as running:
        yield running


def name_of(endpoint: Endpoint) -> str:
    return endpoint.name


def request_of(endpoint: Endpoint) -> Content:
    assert endpoint.request is not None
    return endpoint.request


def operations_of(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Methods and paths, aliases too."""
    return {
        (method.upper(), place)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for place in {path, operation.get("x-also-at", path)}
    }


def handled_by(app: object) -> set[tuple[str, str]]:
    return {(method, re.sub(r":\w+\}", "}", route.pattern)) for route in routes_of(app) for method in route.methods}


def test_the_document_has_every_route_and_no_other(open_gateway: RunningGateway, server: RunningGateway) -> None:
    assert operations_of(open_gateway.http.get("/openapi.json").json()) == handled_by(open_gateway.app)
    without_admin = server.http.get("/openapi.json").json()
    assert operations_of(without_admin) == handled_by(server.app)
    assert "admin" not in without_admin["components"]["securitySchemes"]


def test_names_are_unique_and_plain(described: Described) -> None:
    names = [endpoint.name for endpoint in ENDPOINTS]
    assert len(names) == len(set(names))
    # Two structs of one name would be told apart by their modules.
    assert all(name.isalnum() for name in described.document["components"]["schemas"])


def test_each_body_has_an_example_of_its_schema(described: Described) -> None:
    document = described.document
    answers = [
        answer
        for methods in document["paths"].values()
        for operation in methods.values()
        for answer in [*operation["responses"].values(), *filter(None, [operation.get("requestBody")])]
    ]
    for answer in [*answers, *document["components"]["responses"].values()]:
        for media in answer.get("content", {}).values():
            described.validate(media["example"], media["schema"])


@pytest.mark.parametrize("endpoint", NULLABLE, ids=name_of)
def test_optional_fields_may_be_null_as_the_schema_says(described: Described, endpoint: Endpoint) -> None:
    request = request_of(endpoint)
    decoder = msgspec.json.Decoder(request.type)
    schema = described.document["components"]["schemas"][request.type.__name__]
    body = request.example | dict.fromkeys(schema["properties"].keys() - schema["required"])
    described.validate(body, schema)
    assert decoder.decode(json.dumps(body)) == decoder.decode(
        json.dumps({name: body[name] for name in schema["required"]})
    )


@pytest.mark.parametrize("endpoint", POSTED, ids=name_of)
def test_examples_are_requests_that_the_server_understands(
    open_gateway: RunningGateway, described: Described, endpoint: Endpoint
) -> None:
    request = request_of(endpoint)
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    if request.media_type == "application/json":
        response = open_gateway.http.post(endpoint.path, json=request.example, headers=headers)
    else:
        form = dict(request.example)
        response = open_gateway.http.post(endpoint.path, data=form, files={"file": form.pop("file")})
    described.check(response)
    # What the examples speak of isn't all there.
    expected = {
        "create_embeddings": "model_not_found",
        "create_batch": "file_not_found",
        "swap_policies": "engine_unavailable",
        "load_model": "model_exists",
    }
    if response.status_code != 200:
        assert response.json()["error"]["code"] == expected[endpoint.name]
    else:
        assert endpoint.name not in expected


def events_of(stream: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("said", ["Hi.", CALL, "<think>\nHm.\n</think>\n\nHi."])
@pytest.mark.parametrize(("endpoint", "content"), STREAMED, ids=lambda value: getattr(value, "name", ""))
def test_events_are_of_their_schema(
    open_gateway: RunningGateway, described: Described, endpoint: Endpoint, content: Content, said: str
) -> None:
    open_gateway.engine.script = open_gateway.saying(said)
    body = {**request_of(endpoint).example, "stream": True, "max_tokens": 200, "max_output_tokens": 200}
    if endpoint.name == "create_chat_completion":
        body |= {"tools": [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]}
    elif endpoint.name == "create_message":
        body |= {"tools": [{"name": "weather", "input_schema": WEATHER}]}
    elif endpoint.name == "create_response":
        body |= {"tools": [{"type": "function", "name": "weather", "parameters": WEATHER}]}
    response = open_gateway.http.post(endpoint.path, json=body)
    described.check(response)
    events = events_of(response.text)
    assert len(events) > 1
    schema = {"$ref": f"#/components/schemas/{content.events.__name__}"}
    for event in [*events, *events_of(content.example)]:
        described.validate(event, schema)
        # Nothing comes that isn't described.
        assert event.keys() <= described.document["components"]["schemas"][content.events.__name__]["properties"].keys()


def test_the_page_needs_nothing_else(text_model: TextModel) -> None:
    with running_gateway(text_model, keys=(KeyConfig.plain("sk-one"),)) as running:
        response = running.http.get("/docs")
    described_paths = describe(with_admin=False)["paths"]
    assert response.headers["content-type"].startswith("text/html")
    page = response.text
    assert response.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"<script|<link|<img|https?://|\son\w+=|\sstyle=", page)
    assert all(path in page for path in described_paths)
    assert set(re.findall(r'href="#(\w+)"', page)) <= set(re.findall(r'id="(\w+)"', page))
    assert "/admin" not in re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL)


def test_the_command_prints_the_document(open_gateway: RunningGateway) -> None:
    printed = CliRunner().invoke(main, ["openapi"], catch_exceptions=False)
    assert json.loads(printed.output) == open_gateway.http.get("/openapi.json").json()


def test_the_document_is_told_to_pages_of_this_machine(open_gateway: RunningGateway) -> None:
    response: httpx.Response = open_gateway.http.get("/openapi.json", headers={"origin": "http://localhost:3000"})
    assert response.headers["access-control-allow-origin"] == "http://localhost:3000"
