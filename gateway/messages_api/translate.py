"""From a request for a message to the chat request that it comes to."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import ApiError, invalid
from gateway.messages_api.turns import chat_messages, text_of
from gateway.protocol.chat import ChatMessage, ChatRequest
from gateway.protocol.fields import ResponseFormat
from gateway.protocol.messages import AnyTool, Conversation, InputTool, MessageRequest, NoTool, OneTool
from gateway.protocol.tools import ChosenFunction, FunctionTool, NamedTool, Tool, ToolChoice
from gateway.structured import response_format

# What a chat request calls differently, for its errors.
NAMES = {"response_format": "output_config.format", "reasoning_effort": "output_config.effort"}


def chat_request(fields: MessageRequest) -> ChatRequest:
    """Return the chat request; raises a 400 for what it can't express."""
    return msgspec.structs.replace(
        conversation(fields),
        max_tokens=fields.max_tokens,
        stop=fields.stop_sequences,
        stream=fields.stream,
        temperature=fields.temperature,
        top_k=fields.top_k,
        top_p=fields.top_p,
        user=fields.metadata.user_id if fields.metadata else None,
    )


def conversation(fields: Conversation) -> ChatRequest:
    """The same with nothing but what makes the prompt. Text of the assistant in the end is gone on from."""
    for name, value in (("container", fields.container), ("mcp_servers", fields.mcp_servers)):
        if value:
            raise _unsupported(name, f"'{name}' is not supported: this server runs no tools.")
    messages = chat_messages(fields.messages)
    if fields.system is not None:
        messages.insert(0, ChatMessage(role="system", content=text_of(fields.system, "system")))
    choice = fields.tool_choice
    one_call = choice is not None and not isinstance(choice, NoTool) and choice.disable_parallel_tool_use
    output = fields.output_config
    return ChatRequest(
        model=fields.model,
        messages=messages,
        continue_final_message=messages[-1].role == "assistant",
        tools=[_tool(tool, number) for number, tool in enumerate(fields.tools or ())] or None,
        tool_choice=_tool_choice(fields),
        parallel_tool_calls=not one_call,
        reasoning_effort=output.effort if output else None,
        response_format=_response_format(output.format) if output and output.format else None,
        chat_template_kwargs=(
            {"enable_thinking": fields.thinking.type != "disabled"} if fields.thinking is not None else None
        ),
    )


def _response_format(wanted: dict[str, Any]) -> ResponseFormat:
    """The format one level deeper, where chat has a schema."""
    schema = {"name": "answer", "schema": wanted.get("schema"), "strict": True}
    nested = {"type": wanted.get("type"), "json_schema": schema}
    return response_format(nested, NAMES["response_format"])


def _tool(tool: InputTool, number: int) -> Tool:
    if tool.type not in {None, "custom"}:
        message = f"Tools of the type '{(tool.type or '')[:64]}' can't be served: this server runs no 'tools' itself."
        raise _unsupported(f"tools[{number}].type", message)
    if tool.input_schema is None:
        where = f"tools[{number}].input_schema"
        raise invalid(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    function = FunctionTool(
        name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
    )
    return Tool(type="function", function=function)


def _tool_choice(fields: Conversation) -> ToolChoice | None:
    match fields.tool_choice:
        case None:
            return None
        case NoTool():
            return "none"
        case AnyTool():
            return "required"
        case OneTool(name=name):
            return NamedTool(function=ChosenFunction(name=name))
    return "auto"


def _unsupported(param: str, message: str) -> ApiError:
    return invalid(message, param=param, code="unsupported_parameter")
