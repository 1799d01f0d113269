"""`[weather(town="Oslo"), time()]` as all of an answer: Llama 3.2 and 4, and others."""

from __future__ import annotations

import ast
import warnings

import msgspec

from gateway.tools.source import Source, Steps

START, END = "<|python_start|>", "<|python_end|>"
MAX_CHARACTERS = 32 * 1024  # of the arguments of a call; more are not parsed
_WORDS = {"true": True, "false": False, "null": None}


def pythonic(source: Source) -> Steps[None]:
    """Calls at the beginning, each as soon as it is complete, then text."""
    yield from source.blank()
    yield from source.take(START)
    if (yield from source.blank()) == "[":
        source.advance()
        yield from _calls(source)
    yield from source.rest_as_text()


def _calls(source: Source) -> Steps[None]:
    while True:
        yield from source.blank()
        name = yield from source.word(source.names)
        if name is None or (yield from source.blank()) != "(":
            return
        arguments = python_arguments((yield from source.nested("\"'")))
        if arguments is None:
            return
        source.start_call(name)
        source.argue(arguments)
        yield from source.end_call()
        if (yield from source.blank()) != ",":
            break
        source.advance()
    yield from source.close("]")
    yield from source.close(END)


def python_arguments(text: str | None) -> str | None:
    """Keyword arguments in parentheses as a JSON object; None where they are anything but literals."""
    if text is None or len(text) > MAX_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes that mean nothing
            call = ast.parse(f"f{text}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not all(keyword.arg for keyword in call.keywords):
            return None
        values = {str(keyword.arg): ast.literal_eval(_Words().visit(keyword.value)) for keyword in call.keywords}
        return msgspec.json.encode(values).decode()
    # What a model writes may be no Python, too deep, or no JSON (complex numbers, sets of lists, lone surrogates).
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError, msgspec.MsgspecError):
        return None


class _Words(ast.NodeTransformer):
    """Takes JSON's words for Python's, which models mix up."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node
