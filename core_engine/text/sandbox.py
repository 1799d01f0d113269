"""BoundedSandbox: a Jinja environment whose templates can neither escape, nor run or grow without bound."""

from __future__ import annotations

import json
import re
import time  # noqa: TID251 - a limit on computing time enters no decision of the engine
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_PADDING = frozenset({"batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "zfill"})
# A width or precision of six digits, or one that is itself an argument.
_WIDE_FORMAT = re.compile(r"[{%][^{}%]*\d{6}|\{[^{}]*:[^{}]*\{|%[-+ #0-9.]*\*")
_MAX_NUMBER_BITS = 1 << 16

_deadline: ContextVar[float] = ContextVar("_deadline", default=float("inf"))


class LimitExceeded(SecurityError):
    """A template asked for more time or room than it may have."""


class TemplateRefusal(TemplateRuntimeError):
    """The template called `raise_exception`; the text is its author's."""


class BoundedSandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates for Hugging Face tokenizers expect it, with limits.

    Time is the computing time of the rendering thread, so that a busy machine refuses nobody. It is
    looked at in every pass of a loop, every call and every operation that can make a value grow;
    what these give is limited to `max_characters` (or items), so that no step between two looks is
    long. Jinja's own sandbox limits `range`.
    """

    intercepted_binops = frozenset({"%", "*", "**", "+"})

    def __init__(self, *, max_seconds: float, max_characters: int) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[LoopControlExtension, _GenerationTag]
        )
        self.max_seconds = max_seconds
        self.max_characters = max_characters
        self.filters = {name: self._bounded(name, function) for name, function in self.filters.items()}
        self.filters["tojson"] = self._bounded("tojson", _to_json)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        del self.globals["lipsum"]

    def render(self, template: Template, variables: Mapping[str, Any]) -> str:
        """Render one of this environment's templates; raises LimitExceeded, or what the template raises."""
        token = _deadline.set(time.thread_time() + self.max_seconds)
        try:
            pieces, size = [], 0
            for piece in template.generate(variables):
                self.tick()
                pieces.append(piece)
                size += len(piece)
                if size > self.max_characters:
                    raise LimitExceeded(f"the rendered chat is longer than {self.max_characters} characters")
            return "".join(pieces)
        finally:
            _deadline.reset(token)

    def tick(self) -> None:
        """Raise LimitExceeded where the rendering in this context has used up its time."""
        if time.thread_time() > _deadline.get():
            raise LimitExceeded(f"the chat template takes more than {self.max_seconds:g} s of computing")

    def join_bounded(self, *parts: Any) -> str:
        """What the operator `~` does."""
        strings = [str(part) for part in parts]
        self._check_room(sum(map(len, strings)))
        return "".join(strings)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, method or macro from a template."""
        self.tick()
        self._check_padding(getattr(obj, "__name__", ""), args, kwargs)
        return self._checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator that can make a value grow."""
        self.tick()
        if operator == "%" and isinstance(left, str):
            self._check_format(left)
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self._check_bits(left.bit_length() * abs(right))
        return self._checked(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Guard `str.format`, beyond what Jinja guards, against huge widths."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            self._check_format(value.__self__)
        return wrapped

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Instrument().visit(tree)
        return tree.set_environment(self)  # type: ignore[return-value]

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            self._check_padding(name, args, kwargs)
            if name == "format":
                self._check_format(str(args[0]))
            return self._checked(function(*args, **kwargs))

        return bounded

    def _checked(self, value: Any) -> Any:
        if isinstance(value, str | bytes | list | tuple | dict | set):
            self._check_room(len(value))
        return value

    def _check_room(self, size: int) -> None:
        if size > self.max_characters:
            raise LimitExceeded(
                f"the chat template makes a value of more than {self.max_characters} characters or items"
            )

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            self._check_bits(left.bit_length() + right.bit_length())
        for value, count in ((left, right), (right, left)):
            if isinstance(value, str | bytes | list | tuple) and isinstance(count, int):
                self._check_room(len(value) * count)

    def _check_bits(self, bits: int) -> None:
        if bits > _MAX_NUMBER_BITS:
            raise LimitExceeded(f"the chat template makes a number of more than {_MAX_NUMBER_BITS} bits")

    def _check_padding(self, name: str, args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
        if name in _PADDING:
            for value in (*args, *kwargs.values()):
                if isinstance(value, int):
                    self._check_room(value)

    def _check_format(self, text: str) -> None:
        if _WIDE_FORMAT.search(text):
            raise LimitExceeded("the chat template formats with a width of six digits or a computed one")


class _Instrument(NodeTransformer):
    """Rewrites a template so that its loops are timed and its concatenations limited."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - named after the node
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_environment_call("tick", [], node.lineno), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802 - named after the node
        self.generic_visit(node)
        return _environment_call("join_bounded", node.nodes, node.lineno)


def _environment_call(method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    attribute = nodes.EnvironmentAttribute(method, lineno=line)
    return nodes.Call(attribute, arguments, [], None, None, lineno=line)


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model wrote, for training; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012 - as its base declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, which a model would only have to unlearn."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return _escape_non_ascii(text) if ensure_ascii else text


def _escape_non_ascii(text: str) -> str:
    # Unlike the json module's own, this leaves the noncharacters alone by which control text is marked.
    return re.sub(r"[^\x00-\x7f\ufdd0-\ufdef]", lambda match: json.dumps(match[0])[1:-1], text)


def _raise_exception(message: str) -> None:
    raise TemplateRefusal(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005, TID251 - a chat speaks of the reader's own day
