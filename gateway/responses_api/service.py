"""Responses: what is kept and what runs in the background, from the start of the gateway to its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.responses_api.background import BackgroundResponses
from gateway.responses_api.store import Bounds, ResponseStore, open_store
from gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class Responses:
    """What the routes of responses share."""

    store: ResponseStore
    background: BackgroundResponses


@asynccontextmanager
async def open_responses(directory: Path, settings: GatewaySettings) -> AsyncGenerator[Responses, None]:
    """Open what the directory has; leave this after the engine has stopped, which ends what runs.

    Raises ConfigurationError where the directory can't be used.
    """
    bounds = Bounds(
        retention_days=settings.response_retention_days,
        max_responses=settings.max_stored_responses,
        max_bytes=settings.max_stored_response_bytes,
    )
    async with open_store(directory / "responses.sqlite", bounds) as store:
        responses = Responses(store, BackgroundResponses())
        yield responses
        await responses.background.wait()
