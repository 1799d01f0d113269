"""litellm: ask, stream, and tell errors apart by their texts."""

from __future__ import annotations

import json
import os

import litellm

litellm.telemetry = False
MESSAGES = [{"role": "user", "content": "Hello"}]


def ask(messages: list[dict[str, str]], model: str = os.environ["MODEL"], **options: object) -> object:
    return litellm.completion(
        model=f"openai/{model}",
        messages=messages,
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key="none",
        temperature=0,
        max_tokens=6,
        num_retries=0,
        max_retries=0,
        extra_body={"ignore_eos": True},
        **options,
    )


def error_of(**options: object) -> str:
    try:
        ask(**options)
    except Exception as error:
        return type(error).__name__
    return "none"


answer = ask(MESSAGES)
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(MESSAGES, stream=True))
print(
    json.dumps(
        {
            "text": answer.choices[0].message.content,
            "streamed": streamed,
            "finish_reason": answer.choices[0].finish_reason,
            "tokens": answer.usage.completion_tokens,
            "context_error": error_of(messages=[{"role": "user", "content": "word " * 10_000}]),
            "model_error": error_of(messages=MESSAGES, model="nobody"),
        }
    )
)
