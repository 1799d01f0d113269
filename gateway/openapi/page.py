"""The document as one page of HTML, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import Any

from gateway.openapi.document import describe
from gateway.openapi.schemas import REFERENCE

_STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.875rem/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid #8884; border-radius: 4px; white-space: pre-wrap; }
details { border-top: 1px solid #8884; padding: 0.4rem 0; }
summary { cursor: pointer; }
details > div { margin: 0.5rem 0 1rem 1.2rem; }
table { border-collapse: collapse; }
td { vertical-align: top; padding: 0.15rem 1rem 0.15rem 0; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

# The page's own style is all that a browser may use for it.
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "minLength": "characters, at least",
    "maxLength": "characters, at most",
    "minItems": "items, at least",
    "maxItems": "items, at most",
    "maxProperties": "entries, at most",
    "pattern": "pattern",
}


@functools.cache
def page(*, with_admin: bool) -> bytes:
    """The page for a server with or without an admin API."""
    return "\n".join(_page(describe(with_admin=with_admin))).encode()


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>"
    yield f'<pre>{escape(info["description"])}</pre>\n<p><a href="openapi.json">openapi.json</a></p>'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2>"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(path, method, operation, document["components"]["responses"])
    yield "<h2>Schemas</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<details><summary><code>{name}</code></summary>\n<div id="{name}">'
        yield f"<p>{escape(schema['description'])}</p>"
        yield from _fields(schema)
        yield "</div></details>"
    yield "</body>\n</html>\n"


def _operation(path: str, method: str, operation: dict[str, Any], errors: dict[str, Any]) -> Iterator[str]:
    yield f"<details><summary><code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}</summary>"
    yield "<div>"
    if "description" in operation:
        yield f"<p>{escape(operation['description'])}</p>"
    if "x-also-at" in operation:
        yield f"<p>Also at <code>{escape(operation['x-also-at'])}</code></p>"
    if operation["parameters"]:
        yield "<h4>Parameters</h4>\n<table>"
        for parameter in operation["parameters"]:
            yield _row(parameter["name"], parameter["in"], _kind(parameter["schema"]))
        yield "</table>"
    if "requestBody" in operation:
        yield "<h4>Request</h4>"
        yield from _contents(operation["requestBody"]["content"])
    refused = []
    for status, answer in operation["responses"].items():
        if "$ref" in answer:
            refused.append(_row(status, escape(errors[answer["$ref"].rpartition("/")[2]]["description"])))
            continue
        yield f"<h4>{status}</h4>\n<p>{escape(answer['description'])}</p>"
        yield from _contents(answer["content"])
    yield f"<h4>Errors</h4>\n<table>{''.join(refused)}</table>\n</div></details>"


def _contents(contents: dict[str, Any]) -> Iterator[str]:
    for media_type, media in contents.items():
        events = f", events of {_kind(media['x-event-schema'])}" if "x-event-schema" in media else ""
        yield f"<p><code>{escape(media_type)}</code>: {_kind(media['schema'])}{events}</p>"
        example = media["example"]
        shown = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
        yield f"<pre>{escape(shown)}</pre>"


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    yield "<table>"
    for name, field in schema["properties"].items():
        yield _row(name, _kind(field), "required" if name in required else "")
    yield "</table>"


def _row(name: str, *cells: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _kind(schema: dict[str, Any]) -> str:
    """A schema in words, with links to those it refers to."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    limits = "".join(f", {words} {escape(str(schema[name]))}" for name, words in _LIMITS.items() if name in schema)
    match schema.get("type"):
        case "array" if "items" in schema:
            return f"array of ({_kind(schema['items'])}){limits}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of ({_kind(schema['additionalProperties'])}){limits}"
        case None:
            return "anything"
        case kind:
            return f"{kind}{limits}"
