"""Tools that a request offers, and how it wants them used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

MAX_TOOLS = 128

ToolName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class FunctionTool(msgspec.Struct, kw_only=True):
    """A function; `parameters` is a JSON Schema of an object, none for a function without parameters."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    """A tool; only functions can be served."""

    type: str
    function: FunctionTool | None = None


class ChosenFunction(msgspec.Struct, kw_only=True):
    """The function that a choice names."""

    name: str


class NamedTool(msgspec.Struct, kw_only=True, tag_field="type", tag="function"):
    """One tool by its name."""

    function: ChosenFunction


class AllowedTools(msgspec.Struct, kw_only=True):
    """Some of the tools, to be used or not."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], msgspec.Meta(min_length=1, max_length=MAX_TOOLS)]


class AllowedChoice(msgspec.Struct, kw_only=True, tag_field="type", tag="allowed_tools"):
    """A choice among some of the tools."""

    allowed_tools: AllowedTools


ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedChoice
