"""langchain-openai: ask, stream, batch, complete."""

from __future__ import annotations

import json
import os

from langchain_openai import ChatOpenAI, OpenAI

options = {"model": os.environ["MODEL"], "temperature": 0, "max_retries": 0}
chat = ChatOpenAI(**options, max_tokens=6, stream_usage=True, model_kwargs={"extra_body": {"ignore_eos": True}})
answer = chat.invoke([("system", "Be brief."), ("user", "Hello")])
pieces = list(chat.stream([("system", "Be brief."), ("user", "Hello")]))
whole = pieces[0]
for piece in pieces[1:]:
    whole += piece
batch = chat.batch(["Hello", "Good bye"])
completed = OpenAI(**options, max_tokens=4).invoke("The sky is")
print(
    json.dumps(
        {
            "text": answer.text,
            "streamed": whole.text,
            "finish_reason": answer.response_metadata["finish_reason"],
            "tokens": answer.usage_metadata["output_tokens"],
            "streamed_tokens": whole.usage_metadata["output_tokens"],
            "batched": len(batch),
            "completed": completed,
        }
    )
)
