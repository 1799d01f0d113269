"""Random JSON schemas, of every kind that is followed, whose instances are short."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]
_NAMES = ["name", "age", "ok", "tags", "kind", "größe", "x", "y z", 'q"']
_VALUES = ["red", "green", 'qu"ote', "ä", 1, 2.5, None, True, "new\nline"]
_PATTERNS = ["^[a-z]{1,5}$", "^[A-Z]{2}-[0-9]{3}$", "^(foo|bar)$", "^\\d{1,4}$"]
_DEPTH = 3


def random_schemas(count: int, seed: int) -> list[Schema]:
    """Schemas of objects, the same for the same seed."""
    draw = random.Random(seed)
    return [_object(draw, 0) for _ in range(count)]


def _any(draw: random.Random, depth: int) -> Schema:
    kinds = [_plain, _integer, _choice, _constant, _string, _pattern, _format, _all_of]
    if depth < _DEPTH:
        kinds += [_object] * 4 + [_array, _tuple, _any_of, _one_of, _referred]
    return draw.choice(kinds)(draw, depth)


def _plain(draw: random.Random, _: int) -> Schema:
    return {"type": draw.choice(["integer", "number", "boolean", "null", ["integer", "null"], ["boolean", "null"]])}


def _integer(draw: random.Random, _: int) -> Schema:
    least = draw.randint(-1000, 1000)
    return {"type": "integer", "minimum": least, "maximum": least + draw.randint(0, 500)}


def _choice(draw: random.Random, _: int) -> Schema:
    return {"enum": draw.sample(_VALUES, draw.randint(1, 5))}


def _constant(draw: random.Random, _: int) -> Schema:
    return {"const": draw.choice([*_VALUES, [1, "two"], {"three": 3}])}


def _string(draw: random.Random, _: int) -> Schema:
    return {"type": "string", "minLength": draw.randint(0, 3), "maxLength": draw.randint(3, 8)}


def _pattern(draw: random.Random, _: int) -> Schema:
    return {"type": "string", "pattern": draw.choice(_PATTERNS)}


def _format(draw: random.Random, _: int) -> Schema:
    return {"type": "string", "format": draw.choice(["date", "uuid", "ipv4"])}


def _all_of(draw: random.Random, _: int) -> Schema:
    return {"allOf": [{"type": "integer", "minimum": draw.randint(-5, 5)}, {"maximum": draw.randint(6, 60)}]}


def _object(draw: random.Random, depth: int) -> Schema:
    names = draw.sample(_NAMES, draw.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _any(draw, depth + 1) for name in names},
        "required": [name for name in names if draw.random() < 0.7],
        "additionalProperties": False,
    }


def _array(draw: random.Random, depth: int) -> Schema:
    least = draw.randint(0, 2)
    most = least + draw.randint(0, 2)
    return {"type": "array", "items": _any(draw, depth + 1), "minItems": least, "maxItems": most}


def _tuple(draw: random.Random, depth: int) -> Schema:
    items = [_any(draw, depth + 1) for _ in range(draw.randint(1, 2))]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _any_of(draw: random.Random, depth: int) -> Schema:
    return {"anyOf": [_any(draw, depth + 1) for _ in range(draw.randint(1, 3))]}


def _one_of(draw: random.Random, depth: int) -> Schema:
    """As unions of classes come: told apart by a constant."""
    members = [_object(draw, depth + 1) for _ in range(2)]
    for number, member in enumerate(members):
        member["properties"]["kind"] = {"const": f"kind {number}"}
        member["required"] = sorted({*member["required"], "kind"})
    return {"oneOf": members}


def _referred(draw: random.Random, depth: int) -> Schema:
    """A reference in a document of its own."""
    return {"$id": f"urn:x:{draw.getrandbits(64)}", "$defs": {"it": _any(draw, depth + 1)}, "$ref": "#/$defs/it"}
