"""From a request for a response to the chat request that it comes to."""

from __future__ import annotations

from gateway.errors import ApiError, invalid
from gateway.protocol.chat import ChatMessage, ChatRequest
from gateway.protocol.fields import GenerationFields, ResponseFormat
from gateway.protocol.responses import (
    FlatAllowedTools,
    FlatNamedTool,
    FlatTool,
    FlatToolChoice,
    InputItem,
    ResponseRequest,
)
from gateway.protocol.tools import (
    AllowedChoice,
    AllowedTools,
    ChosenFunction,
    FunctionTool,
    NamedTool,
    Tool,
    ToolChoice,
)
from gateway.responses_api.items import chat_messages
from gateway.structured import response_format

LOGPROBS = "message.output_text.logprobs"  # of `include`

# What a chat request calls differently, for its errors.
NAMES = {"max_completion_tokens": "max_output_tokens", "messages": "input", "response_format": "text.format"}

_TAKEN_OVER = tuple(
    name
    for name in GenerationFields.__struct_fields__
    if name not in {"n", "stream_options", "response_format", "return_token_ids", "prompt_logprobs"}
)


def chat_request(fields: ResponseRequest, items: list[InputItem]) -> ChatRequest:
    """Return the chat request with these items, earlier ones included; raises a 400 for what it can't express."""
    if fields.conversation is not None:
        raise _unsupported("conversation", "'conversation' is not supported: go on by 'previous_response_id'.")
    if fields.prompt is not None:
        raise _unsupported("prompt", "'prompt' is not supported: this server keeps no prompt templates.")
    messages = chat_messages(items)
    if fields.instructions is not None:
        messages.insert(0, ChatMessage(role="system", content=fields.instructions))
    if not messages:
        raise invalid("'input' has nothing to answer: it needs a message or the output of a call.", param="input")
    logprobs = LOGPROBS in (fields.include or ())
    return ChatRequest(
        **{name: getattr(fields, name) for name in _TAKEN_OVER},
        messages=messages,
        max_completion_tokens=fields.max_output_tokens,
        logprobs=logprobs,
        top_logprobs=fields.top_logprobs if logprobs else None,
        response_format=_response_format(fields),
        tools=[_tool(tool, number) for number, tool in enumerate(fields.tools or ())] or None,
        tool_choice=_tool_choice(fields.tool_choice),
        parallel_tool_calls=fields.parallel_tool_calls,
        reasoning_effort=fields.reasoning.effort if fields.reasoning else None,
        chat_template_kwargs=fields.chat_template_kwargs,
    )


def _response_format(fields: ResponseRequest) -> ResponseFormat | None:
    """The format one level deeper, where chat has a schema; raises a 400 for one that is none."""
    wanted = fields.text.format if fields.text else None
    if wanted is None:
        return None
    schema = {key: value for key, value in wanted.items() if key != "type"}
    nested = {"type": wanted.get("type"), "json_schema": schema or None}
    return response_format(nested, NAMES["response_format"])


def _tool(tool: FlatTool, number: int) -> Tool:
    if tool.type != "function":
        message = f"Tools of the type '{tool.type[:64]}' can't be served; 'tools' may have functions."
        raise _unsupported(f"tools[{number}].type", message)
    if tool.name is None:
        where = f"tools[{number}].name"
        raise invalid(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    function = FunctionTool(
        name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
    )
    return Tool(type="function", function=function)


def _tool_choice(choice: FlatToolChoice | None) -> ToolChoice | None:
    match choice:
        case FlatNamedTool():
            return _named(choice)
        case FlatAllowedTools(mode=mode, tools=tools):
            return AllowedChoice(allowed_tools=AllowedTools(mode=mode, tools=[_named(tool) for tool in tools]))
    return choice


def _named(tool: FlatNamedTool) -> NamedTool:
    return NamedTool(function=ChosenFunction(name=tool.name))


def _unsupported(param: str, message: str) -> ApiError:
    return invalid(message, param=param, code="unsupported_parameter")
