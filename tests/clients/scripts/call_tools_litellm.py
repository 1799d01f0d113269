"""litellm: a call, streamed and put together by its own builder."""

from __future__ import annotations

import json
import os

import litellm

litellm.telemetry = False
PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
OPTIONS = {
    "model": f"openai/{os.environ['MODEL']}",
    "messages": [{"role": "user", "content": "Do I need an umbrella?"}],
    "api_base": os.environ["OPENAI_BASE_URL"],
    "api_key": "none",
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}],
    "num_retries": 0,
    "max_retries": 0,
}


def calls(answer: litellm.ModelResponse) -> list[list[object]]:
    functions = [call.function for call in answer.choices[0].message.tool_calls]
    return [[function.name, json.loads(function.arguments)] for function in functions]


whole = litellm.completion(**OPTIONS)
streamed = litellm.stream_chunk_builder(list(litellm.completion(**OPTIONS, stream=True)))
print(
    json.dumps({"calls": calls(whole), "streamed_calls": calls(streamed), "reason": streamed.choices[0].finish_reason})
)
