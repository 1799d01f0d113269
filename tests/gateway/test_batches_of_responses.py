"""`/v1/batches` over `/v1/responses`: which are kept, gone on from, and refused."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types import BatchRequestCounts as RequestCounts
from openai.types import responses as sdk_types

from core_engine import KeyConfig
from core_engine.text import TextModel
from tests.gateway.batching import create, ended, jsonl, line, read, sdk
from tests.gateway.respond import RESPONSES
from tests.gateway.running import RunningGateway, running_gateway


@pytest.fixture(scope="module")
def server(text_model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = (KeyConfig.plain("one"), KeyConfig.plain("two"))
    with running_gateway(text_model, data_dir=str(tmp_path_factory.mktemp("data")), keys=keys) as running:
        yield running


def test_lines_are_responses(server: RunningGateway) -> None:
    """Kept where they say so, so that a batch does not push out what the tenant has kept."""
    client = sdk(server)
    lines = [line(1, RESPONSES, input="Hello"), line(2, RESPONSES, input="Hello", store=True)]
    batch = ended(client, create(client, jsonl(*lines), RESPONSES))
    bodies = [result["response"]["body"] for result in read(client, batch.output_file_id)]
    for body in bodies:
        sdk_types.Response.model_validate(body, strict=True)
        assert (body["status"], body["output"][0]["content"][0]["text"]) == ("completed", "Hi.")
    assert [body["store"] for body in bodies] == [False, True]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(bodies[0]["id"])
    assert client.responses.retrieve(bodies[1]["id"]).output_text == "Hi."
    with pytest.raises(openai.NotFoundError):
        sdk(server, "two").responses.retrieve(bodies[1]["id"])
    assert batch.usage is not None
    assert batch.usage.output_tokens == sum(body["usage"]["output_tokens"] for body in bodies)
    gone_on = line(1, RESPONSES, input="And?", previous_response_id=bodies[1]["id"])
    assert ended(client, create(client, jsonl(gone_on), RESPONSES)).request_counts == RequestCounts(
        total=1, completed=1, failed=0
    )


def test_a_response_that_nobody_could_wait_for_fails_alone(server: RunningGateway) -> None:
    client = sdk(server)
    wrong = [{"stream": True}, {"background": True}, {"previous_response_id": "resp_none"}, {"input": 5}]
    lines = [line(number, RESPONSES, **{"input": "Hello", **fields}) for number, fields in enumerate(wrong)]
    batch = ended(client, create(client, jsonl(*lines), RESPONSES))
    errors = [result["response"]["body"]["error"] for result in read(client, batch.error_file_id)]
    assert [error["param"] for error in errors] == ["stream", "background", "previous_response_id", "input"]
