"""Whether answers are what the OpenAPI document says."""

from __future__ import annotations

import re
from typing import Any

import httpx
import jsonschema

from gateway.edge import normal_path


class Described:
    """Judges answers and values by a document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        # Literal paths come before those with parameters, as they do for a server.
        paths = sorted(document["paths"].items(), key=lambda item: "{" in item[0])
        self._operations = [
            (method.upper(), self._pattern(path), operation)
            for path, methods in paths
            for method, operation in methods.items()
        ]
        self._validators: dict[str, jsonschema.Draft202012Validator] = {}

    @staticmethod
    def _pattern(path: str) -> re.Pattern[str]:
        slashes = path.startswith(("/v1/models/", "/admin/models/"))
        return re.compile(re.sub(r"\\\{\w+\\\}", ".+" if slashes else "[^/]+", re.escape(path)), re.DOTALL)

    def check(self, response: httpx.Response) -> None:
        """Fail unless the status is known there and the body is of its schema; other methods and paths pass."""
        operation = self._find(response.request.method, normal_path(response.request.url.path))
        if operation is None:
            return
        assert str(response.status_code) in operation["responses"], (response.request.url, response.status_code)
        answer = operation["responses"][str(response.status_code)]
        if "$ref" in answer:
            answer = self.document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        media_type = response.headers["content-type"].partition(";")[0]
        assert media_type in answer["content"], (response.request.url, media_type)
        if media_type == "application/json":
            self.validate(response.json(), answer["content"][media_type]["schema"])

    def _find(self, method: str, path: str) -> dict[str, Any] | None:
        for known, pattern, operation in self._operations:
            also_at = operation.get("x-also-at")
            patterns = (pattern,) if also_at is None else (pattern, self._pattern(also_at))
            if known == method and any(pattern.fullmatch(path) for pattern in patterns):
                return operation
        return None

    def validate(self, value: object, schema: dict[str, Any]) -> None:
        """Fail unless the value is of the schema, and the schema is one."""
        key = repr(schema)
        if key not in self._validators:
            whole = {**schema, "components": self.document["components"]}
            jsonschema.Draft202012Validator.check_schema(whole)
            self._validators[key] = jsonschema.Draft202012Validator(whole)
        self._validators[key].validate(value)
