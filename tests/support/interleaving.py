"""Coroutines stopped at a point of the test's choice, instead of hoping that others overtake them there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def begun(work: Coroutine[Any, Any, Any]) -> None:
    """Bring it to its first wait and leave it there, with what it waits for at hand, as a busy event loop would.

    The caller closes it.
    """
    await asyncio.wait({work.send(None)})
