"""Query parameters of lists that come in pages."""

from __future__ import annotations

from typing import Any

from litestar import Request

from gateway.errors import invalid


def page_limit(request: Request[Any, Any, Any], *, default: int, most: int) -> int:
    """The number of objects a page may have, from 1 to `most`; raises a 400 for another."""
    given = request.query_params.get("limit", str(default))
    if not (given.isascii() and given.isdigit() and len(given) <= 9 and 1 <= int(given) <= most):
        raise invalid(f"'limit' must be a number from 1 to {most}.", param="limit")
    return int(given)


def page_cursor(request: Request[Any, Any, Any]) -> str | None:
    """The id after which the page begins."""
    return request.query_params.get("after")
