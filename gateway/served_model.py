"""ServedModel: one model with its engine, its text half, and whether it can serve."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from core_engine import EngineClient, EngineInfo, GrammarChecker
from core_engine.text import TextModel, load_text_model
from gateway.deployment import ModelSettings, Parsers
from gateway.errors import ApiError

logger = logging.getLogger("jitney")

_RETRY_SECONDS = {"starting": 5.0, "restarting": 5.0, "draining": 2.0}
_REASONS = {
    "starting": "The model is still being loaded; try again in a few seconds.",
    "restarting": "The engine stopped and is being restarted; try again in a few seconds.",
    "draining": "This server is shutting down and takes no new requests.",
    "unloading": "The model is being unloaded and takes no new requests.",
    "failed": "The engine failed for good; the server's log says why.",
    "stopped": "The engine has been stopped.",
    "empty": "No model is loaded.",
}
_CODES = {"draining": "draining", "unloading": "model_unloading", "empty": "no_model"}


def unavailable(state: str) -> ApiError:
    """The 503 of a server or a model in any state but `ready`."""
    return ApiError(
        503,
        _REASONS[state],
        code=_CODES.get(state, f"engine_{state}"),
        retry_after_seconds=_RETRY_SECONDS.get(state),
        should_retry=state in _RETRY_SECONDS,
    )


class Activity:
    """Counts the requests between their arrival and their last byte; `idle` is set while there are none."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.num_active = 0

    def begin(self) -> None:
        """A request begins."""
        self.num_active += 1
        self.idle.clear()

    def end(self) -> None:
        """A request has ended."""
        self.num_active -= 1
        if not self.num_active:
            self.idle.set()


@dataclass(frozen=True, slots=True)
class Serving:
    """A model that serves: engine, text half, what the engine says of it, parsers, and the count of its requests.

    `grammars` finds out what structured output it can guarantee.
    """

    client: EngineClient
    text_model: TextModel
    info: EngineInfo
    parsers: Parsers
    activity: Activity
    grammars: GrammarChecker


class ServedModel:
    """A model from its loading to its end. `text_model` is set once its files are there, `unloading` by its end."""

    def __init__(self, settings: ModelSettings, client: EngineClient, text_model: TextModel | None = None) -> None:
        self.name = settings.name
        self.names = (settings.name, *settings.aliases)  # that clients may call it by
        self._parsers = settings.parsers
        self.source = settings.config.model
        self.kind = settings.config.task
        self.client = client
        self.text_model = text_model
        self._grammars: GrammarChecker | None = None
        self.activity = Activity()
        self.unloading = False
        self.created = int(time.time())

    @property
    def state(self) -> str:
        """`ready`, or why it isn't: starting, restarting, unloading, failed, stopped."""
        if self.unloading:
            return "unloading"
        if self.client.state == "ready" and (self.text_model is None or self.client.info is None):
            return "starting"
        return self.client.state

    def serving(self) -> Serving:
        """What requests need; raises a 503 that says why there is none at the moment."""
        if self.state != "ready":
            raise unavailable(self.state)
        assert self.text_model is not None
        assert self.client.info is not None
        if self._grammars is None:
            self._grammars = GrammarChecker(self.text_model)
        return Serving(self.client, self.text_model, self.client.info, self._parsers, self.activity, self._grammars)

    async def stop(self) -> None:
        """End the engine, and what was started beside it; requests that still run end with an error."""
        if self._grammars is not None:
            await self._grammars.close()
        await self.client.stop()

    async def bring_up(self) -> None:
        """Start the engine, read the text half, and say when requests can come.

        Raises EngineUnavailable and ModelError where that fails.
        """
        await self.client.start()
        directory = await self.client.wait_prepared()
        self.text_model = await asyncio.to_thread(load_text_model, directory)
        _announce(await self.client.wait_ready())


def _announce(info: EngineInfo) -> None:
    """Log what is served, by which policies, and how long it took to get there."""
    what = (
        f"embeddings of {info.embedding_size} numbers, texts of {info.max_model_len} tokens"
        if info.kind == "embed"
        else f"context of {info.max_model_len} tokens, {info.num_blocks} KV blocks of {info.block_size} tokens"
    )
    logger.info("ready: %s (%s, %s on %s), %s", info.model, info.architecture, info.dtype, info.device, what)
    policies = ", ".join(f"{hook}: {' '.join(names)}" for hook, names in info.policies.items() if names)
    logger.info("policies of %s: %s", info.model, policies)
    if info.phases:
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in info.phases.items())
        logger.info("start of %s: %s", info.model, phases)
