"""JSON Schemas of the structs that bodies are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

REFERENCE = "#/components/schemas/"


class Schemas:
    """The schemas of these types and of all that they hold; `requests` are those that clients send.

    A struct of answers always has the fields that have a default, unlike one of requests, where they may be absent.
    """

    def __init__(self, requests: Sequence[Any], kinds: Sequence[Any]) -> None:
        self._kinds = list(dict.fromkeys(kinds))
        schemas, self.components = msgspec.json.schema_components(self._kinds, ref_template=REFERENCE + "{name}")
        self._schemas = list(schemas)
        sent = set(self._reached([self.of(kind) for kind in requests]))
        for name in self.components.keys() - sent:
            self._require_defaults(self.components[name])

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of one of the types, or a reference to it."""
        return self._schemas[self._kinds.index(kind)]

    def _reached(self, schemas: list[dict[str, Any]]) -> Iterator[str]:
        """The names of the components that these schemas hold."""
        waiting, seen = [name for schema in schemas for name in references(schema)], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += references(self.components[name])
                yield name

    @staticmethod
    def _require_defaults(schema: dict[str, Any]) -> None:
        if schema.get("type") == "object":
            properties = schema["properties"]
            required = schema.get("required", [])
            schema["required"] = [name for name in properties if name in required or "default" in properties[name]]


def references(schema: object) -> list[str]:
    """The names of the components that a schema refers to itself."""
    if isinstance(schema, list):
        return [name for part in schema for name in references(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].removeprefix(REFERENCE)] if "$ref" in schema else []
    return own + [name for part in schema.values() for name in references(part)]
