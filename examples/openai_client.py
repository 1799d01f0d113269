"""Chat with a running server through the OpenAI SDK: one answer at once, one token by token.

Start a server with `make serve`, have the SDK (`pip install openai`), and run this file.
"""

from __future__ import annotations

import os

from openai import OpenAI

# Only the base URL differs from OpenAI's own service; the key matters where the server was started with --api-key.
client = OpenAI(
    base_url=os.environ.get("JITNEY_BASE_URL", "http://127.0.0.1:8000") + "/v1",
    api_key=os.environ.get("JITNEY_API_KEY", "none"),
)
model = next(iter(client.models.list())).id

answer = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "What is the capital of France?"}],
    temperature=0,
    max_tokens=32,
)
print(answer.choices[0].message.content)

stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Tell me about a small bus in one sentence."}],
    max_tokens=64,
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
