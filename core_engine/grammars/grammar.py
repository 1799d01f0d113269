"""Grammar: what a client wants an output to be, as text."""

from __future__ import annotations

from typing import Literal

import msgspec

GrammarKind = Literal["json_object", "json_schema", "regex", "choice", "lark"]


class Grammar(msgspec.Struct, frozen=True):
    """What a whole output must be, from its first token to its end.

    `text` is nothing for `json_object` (any JSON object), a JSON Schema as JSON for `json_schema`, a
    regular expression that matches the whole output for `regex`, a JSON list of strings for `choice`,
    and a grammar in Lark's notation as llguidance reads it for `lark`.
    """

    kind: GrammarKind
    text: str = ""
