"""The official Python SDK with nothing but its base URL changed."""

from __future__ import annotations

import openai
import pytest

from tests.blackbox.client import Client
from tests.support.server import ServerProcess


def test_an_answer_is_read(sdk: openai.OpenAI, server: ServerProcess) -> None:
    answer = sdk.chat.completions.create(
        model=server.model,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        max_tokens=4,
        extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1},
    )
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 4
    assert answer.usage.prompt_tokens_details is not None


def test_a_stream_is_iterated_to_its_end(sdk: openai.OpenAI, server: ServerProcess) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-2].choices[0].finish_reason in {"stop", "length"}


def test_the_stream_helper_accumulates(sdk: openai.OpenAI, server: ServerProcess, client: Client) -> None:
    token_id, unit = client.plain_token
    with sdk.chat.completions.stream(
        model=server.model,
        messages=[{"role": "user", "content": "Hi"}],
        logprobs=True,
        logit_bias={str(token_id): 100},
        stop=unit,
        extra_body={"min_tokens": 2},  # before them nothing stops
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text == unit * 2
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].logprobs is not None


def test_completions_and_models_are_read(sdk: openai.OpenAI, server: ServerProcess) -> None:
    completion = sdk.completions.create(model=server.model, prompt=["a", "b"], max_tokens=2, logprobs=1)
    assert [choice.index for choice in completion.choices] == [0, 1]
    assert completion.choices[0].logprobs is not None
    assert [model.id for model in sdk.models.list()] == [server.model]
    assert sdk.models.retrieve(server.model).id == server.model


def test_errors_become_the_sdks_own(sdk: openai.OpenAI, server: ServerProcess) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "Hi"}])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model=server.model, messages=[{"role": "user", "content": "word " * 10_000}])
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.request_id
