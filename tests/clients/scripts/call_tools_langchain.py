"""langchain-openai: a bound tool called, at once and streamed, and an answer made of its result."""

from __future__ import annotations

import json
import os

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def weather(town: str) -> str:
    """The weather in a town."""
    return {"Oslo": "rain, 7 degrees"}[town]


chat = ChatOpenAI(model=os.environ["MODEL"], max_retries=0).bind_tools([weather])
question = HumanMessage("Do I need an umbrella?")
message = chat.invoke([question])
pieces = list(chat.stream([question]))
whole = pieces[0]
for piece in pieces[1:]:
    whole += piece
(call,) = message.tool_calls
result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
print(
    json.dumps(
        {
            "text": message.text,
            "calls": [[call["name"], call["args"]] for call in message.tool_calls],
            "streamed_calls": [[call["name"], call["args"]] for call in whole.tool_calls],
            "answer": chat.invoke([question, message, result]).text,
        }
    )
)
