"""ChatTemplate: messages to one text, as the model was trained to see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from jinja2 import Template, TemplateSyntaxError, nodes

from core_engine.errors import InvalidRequest, ModelError
from core_engine.text.control import FINAL_MESSAGE_END, ControlText, strip_marks
from core_engine.text.sandbox import BoundedSandbox, TemplateRefusal

MAX_RENDER_SECONDS = 2.0  # of computing
MAX_RENDERED_CHARACTERS = 8_000_000
_BLANK = "\u2003"  # white space that templates don't write themselves


class ChatTemplate:
    """One model's chat templates, compiled, with the variables that Hugging Face gives them.

    `sources` are template texts by name ("default", and "tool_use" where tools have their own),
    `special_tokens` the texts of bos_token and so on. What a client must not be able to write as a
    token: every one of `control_tokens`, and those of `added_tokens` that a template speaks of.
    Raises ModelError for a template that isn't valid.
    """

    def __init__(
        self,
        sources: dict[str, str],
        *,
        special_tokens: dict[str, str],
        control_tokens: Collection[str],
        added_tokens: Collection[str] = (),
        normalize: Callable[[str], str] | None = None,
        max_seconds: float = MAX_RENDER_SECONDS,
        max_characters: int = MAX_RENDERED_CHARACTERS,
    ) -> None:
        self._sandbox = BoundedSandbox(max_seconds=max_seconds, max_characters=max_characters)
        self._templates = {name: self._compile(name, source) for name, source in sources.items()}
        self._special_tokens = special_tokens
        trees = [self._sandbox.parse(source) for source in sources.values()]
        written = self._written = "\0".join(text for tree in trees for text in _texts(tree))
        self._variables_read = {node.name for tree in trees for node in tree.find_all(nodes.Name)}
        searched_in = "\0".join(text for tree in trees for text in _searched_texts(tree))
        controls = {*control_tokens, *(token for token in added_tokens if not token.isspace() and token in written)}
        self.control = ControlText(controls, {token for token in controls if token in searched_in}, normalize)

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        template_kwargs: dict[str, Any],
    ) -> str:
        """Return the text of a conversation, marked for `control.pieces`.

        Keys of a message whose value is None are left out. Raises InvalidRequest, with `param`, for
        whatever the template refuses.
        """
        try:
            chat = [{key: value for key, value in message.items() if value is not None} for message in messages]
            variables = self._variables(self.control.mark(chat), template_kwargs)
            variables["add_generation_prompt"] = add_generation_prompt
            if continue_final_message:
                _mark_final_message(variables["messages"])
            rendered = self._sandbox.render(self._choose(variables), variables)
        except InvalidRequest:
            raise
        except TemplateRefusal as error:
            raise _invalid(strip_marks(str(error))) from error
        # Nearly anything can go wrong in a template that meets data it wasn't written for.
        except Exception as error:
            reason = strip_marks(str(error)) or type(error).__name__
            raise _invalid(f"the model's chat template can't render these messages: {reason}") from error
        return _cut_after_final_message(rendered) if continue_final_message else rendered

    def says(self, text: str) -> bool:
        """Whether a template holds this text, to print it or to look for it."""
        return text in self._written

    def takes(self, variable: str) -> bool:
        """Whether a template makes use of this variable."""
        return variable in self._variables_read

    def _compile(self, name: str, source: str) -> Template:
        try:
            return self._sandbox.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelError(
                f"the model's chat template {name!r} isn't valid at line {error.lineno}: {error.message}"
            ) from error

    def _variables(self, messages: list[dict[str, Any]], template_kwargs: dict[str, Any]) -> dict[str, Any]:
        ours = {**self._special_tokens, "messages": messages}
        if taken := sorted({*ours, "add_generation_prompt"} & set(template_kwargs)):
            raise InvalidRequest(
                f"chat_template_kwargs can't set {', '.join(taken)}: the server does",
                "invalid_value",
                "chat_template_kwargs",
            )
        return {"tools": None, "documents": None, **self.control.mark(template_kwargs), **ours}

    def _choose(self, variables: dict[str, Any]) -> Template:
        name = "tool_use" if variables["tools"] and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise _invalid(f"the model has no default chat template, only {', '.join(sorted(self._templates))}")
        return self._templates[name]


def _mark_final_message(messages: list[dict[str, Any]]) -> None:
    """Append a mark to the text of the last message, and a blank that is gone again if the template trims."""
    content = messages[-1].get("content") if messages else None
    if isinstance(content, str):
        messages[-1]["content"] = content + FINAL_MESSAGE_END + _BLANK
        return
    for part in reversed(content if isinstance(content, list) else []):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            part["text"] = part["text"] + FINAL_MESSAGE_END + _BLANK
            return
    raise InvalidRequest(
        "continue_final_message needs a last message with text content to continue",
        "invalid_value",
        "continue_final_message",
    )


def _cut_after_final_message(rendered: str) -> str:
    position = rendered.rfind(FINAL_MESSAGE_END)
    if position < 0:
        raise InvalidRequest(
            "the model's chat template leaves the final message out, so it can't be continued",
            "invalid_value",
            "continue_final_message",
        )
    text = rendered[:position].replace(FINAL_MESSAGE_END, "")
    return text if rendered.startswith(_BLANK, position + 1) else text.rstrip()


def _texts(tree: nodes.Node) -> Iterator[str]:
    """Every text that a template holds."""
    yield from (node.data for node in tree.find_all(nodes.TemplateData))
    yield from (node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))


def _searched_texts(tree: nodes.Node) -> Iterator[str]:
    """Texts that a template may look for in a message: what it compares, passes on or keeps in a variable."""
    for node in tree.find_all((nodes.Call, nodes.Compare, nodes.Filter, nodes.Test, nodes.Assign)):
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.EnvironmentAttribute):
            continue  # the sandbox's own, not the author's
        if isinstance(node, nodes.Assign) and not isinstance(node.node, nodes.Const | nodes.List | nodes.Dict):
            continue  # text put together for printing
        yield from _texts(node)


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, "invalid_messages", "messages")
