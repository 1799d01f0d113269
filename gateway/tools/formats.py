"""ToolFormat: one way in which models write calls of tools, and which of them a model was trained on."""

from __future__ import annotations

import secrets
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from core_engine.text import TextModel
from gateway.tools import forced, hermes, llama, mistral, plain_json, pythonic
from gateway.tools.source import Source, Steps
from gateway.tools.syntax import JSON_LIST, CallSyntax


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex}"


def _short_id() -> str:
    """Nine letters and digits: Mistral's templates accept no other."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How calls are read; `marks` are the texts of tokens that must be shown for that.

    `syntax` is how they are written where a grammar holds the model to it.
    """

    read: Callable[[Source], Steps[None]]
    syntax: CallSyntax
    marks: tuple[str, ...] = ()
    new_id: Callable[[], str] = _new_id


FORMATS = {
    "hermes": ToolFormat(hermes.hermes, hermes.SYNTAX, (hermes.START, hermes.END)),
    "mistral": ToolFormat(mistral.mistral, mistral.SYNTAX, (mistral.START, mistral.ID, mistral.ARGUMENTS), _short_id),
    "pythonic": ToolFormat(pythonic.pythonic, JSON_LIST, (pythonic.START, pythonic.END)),
    "llama": ToolFormat(llama.llama, llama.SYNTAX, (llama.TAG,)),
    "json": ToolFormat(plain_json.plain_json, JSON_LIST),
}
FORCED = ToolFormat(forced.named, JSON_LIST)
NOT_HELD = {"pythonic"}  # that a grammar can't lay out: held to one, calls are JSON
# What a chat template says where it teaches a format; the first that is found counts.
_SIGNS = {
    "hermes": (hermes.START,),
    "mistral": (mistral.START,),
    "pythonic": (pythonic.START, "[func_name1(params_name1="),
    "llama": (llama.TAG, '"parameters": dictionary of argument name and its value'),
}


def detected_format(text_model: TextModel) -> str:
    """The name of the format that a model's template teaches.

    A template without tools gets Hermes' (`gateway.tools.teaching` explains it to the model), one that shows tools
    without a known mark plain JSON.
    """
    for name, signs in _SIGNS.items():
        if any(text_model.template_says(sign) for sign in signs):
            return name
    return "json" if text_model.template_takes("tools") else "hermes"
