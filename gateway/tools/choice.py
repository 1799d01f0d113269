"""ToolUse: which tools a request lets the model call, and whether it must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import ApiError, invalid
from gateway.protocol.chat import ChatRequest
from gateway.protocol.tools import AllowedChoice, FunctionTool, NamedTool, Tool

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that may be called.

    `mode` is "auto" where the model decides, "required" where it must call some, "named" where it must call the one
    that `tools` then holds. With `one_call` an answer has at most one call.
    """

    tools: tuple[FunctionTool, ...]
    mode: Literal["auto", "required", "named"]
    one_call: bool

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return [tool.name for tool in self.tools]

    @property
    def is_strict(self) -> bool:
        """Whether the arguments of any of them shall fit its schema."""
        return any(tool.strict for tool in self.tools)

    def for_template(self) -> list[dict[str, Any]]:
        """The tools as chat templates take them."""
        return [{"type": "function", "function": _described(tool)} for tool in self.tools]


def tool_use(body: ChatRequest) -> ToolUse | None:
    """Return what a request says about tools, None where the model is to know of none.

    Raises a 400 that names what is wrong.
    """
    for name in ("functions", "function_call"):
        if getattr(body, name):
            raise invalid(
                f"'{name}' is not served: it was replaced by 'tools' and 'tool_choice'.",
                param=name,
                code="unsupported_parameter",
            )
    offered = _offered(body.tools or [])
    choice = body.tool_choice or "auto"
    if choice == "none":
        return None
    if not offered:
        if choice != "auto":
            raise _bad_choice("'tool_choice' asks for a tool, but 'tools' has none.")
        return None
    one_call = body.parallel_tool_calls is False
    match choice:
        case NamedTool():
            return ToolUse(_named([choice], offered), "named", one_call=True)
        case AllowedChoice(allowed_tools=allowed):
            return ToolUse(_named(allowed.tools, offered), allowed.mode, one_call)
        case "required":
            return ToolUse(tuple(offered.values()), "required", one_call)
    return ToolUse(tuple(offered.values()), "auto", one_call)


def schema_of(tool: FunctionTool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, which are always an object."""
    return _NO_PARAMETERS if tool.parameters is None else {"type": "object", **tool.parameters}


def _offered(tools: list[Tool]) -> dict[str, FunctionTool]:
    offered: dict[str, FunctionTool] = {}
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if tool.type != "function":
            message = f"Tools of the type '{tool.type[:64]}' can't be served; 'tools' may have functions."
            raise invalid(message, param=f"{where}.type")
        if tool.function is None:
            message = f"A tool of the type 'function' in 'tools' needs '{where}.function'."
            raise invalid(message, param=f"{where}.function", code="missing_required_parameter")
        function = tool.function
        if function.name in offered:
            raise invalid(f"'tools' has two functions of the name '{function.name}'.", param=f"{where}.function.name")
        if schema_of(function)["type"] != "object":
            message = f"The parameters of '{function.name}' in 'tools' must be a JSON Schema of the type 'object'."
            raise invalid(message, param=f"{where}.function.parameters")
        offered[function.name] = function
    return offered


def _named(wanted: list[NamedTool], offered: dict[str, FunctionTool]) -> tuple[FunctionTool, ...]:
    names = dict.fromkeys(tool.function.name for tool in wanted)
    for name in names:
        if name not in offered:
            raise _bad_choice(f"'tool_choice' names '{name[:64]}', which is none of 'tools': {', '.join(offered)}.")
    return tuple(offered[name] for name in names)


def _described(tool: FunctionTool) -> dict[str, Any]:
    described: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        described["description"] = tool.description
    described["parameters"] = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    return described


def _bad_choice(message: str) -> ApiError:
    return invalid(message, param="tool_choice")
