"""Tools for a model whose chat template knows none: all of it becomes text in the format of Hermes."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.tools import hermes

_LESSON = """\
You can call functions. These are there, each described by a JSON object:
<tools>
{tools}
</tools>
To call one, write its name and its arguments as a JSON object between tags, and nothing after it:
{start}
{{"name": "the function's name", "arguments": {{"the parameter's name": "its value"}}}}
{end}"""


def taught(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with tools explained by the system, calls in the assistant's text and results in the user's.

    Results that follow each other go into one message, since many templates want user and assistant to take turns.
    """
    result: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            if result and result[-1].get("is_result"):
                result[-1]["content"] += "\n" + text
            else:
                result.append({"role": "user", "content": text, "is_result": True})
        elif calls := message.get("tool_calls"):
            texts = [message["content"]] if message["content"] else []
            content = "\n".join([*texts, *(_call(call["function"]) for call in calls)])
            result.append({"role": "assistant", "content": content})
        else:
            result.append(dict(message))
    for message in result:
        message.pop("is_result", None)
    if not tools:
        return result
    lesson = _LESSON.format(tools="\n".join(map(_json, tools)), start=hermes.START, end=hermes.END)
    if result[0]["role"] == "system":
        first, *rest = result
        return [{**first, "content": f"{first['content']}\n\n{lesson}"}, *rest]
    return [{"role": "system", "content": lesson}, *result]


def _call(function: dict[str, Any]) -> str:
    return f"{hermes.START}\n{_json(function)}\n{hermes.END}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
