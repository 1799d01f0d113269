"""Gateway: what all routes share, and whether it can serve."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from core_engine import Callers, EngineClient, EngineInfo
from core_engine.text import TextModel
from gateway.errors import ApiError
from gateway.settings import GatewaySettings
from gateway.telemetry import Telemetry
from gateway.workers import TextWorkers

_RETRY_SECONDS = {"starting": 5.0, "restarting": 5.0, "draining": 2.0}
_REASONS = {
    "starting": "The model is still being loaded; try again in a few seconds.",
    "restarting": "The engine stopped and is being restarted; try again in a few seconds.",
    "draining": "This server is shutting down and takes no new requests.",
    "failed": "The engine failed for good; the server's log says why.",
    "stopped": "The engine has been stopped.",
}


@dataclass(frozen=True, slots=True)
class Serving:
    """The model that is served: its text half and what the engine says of it."""

    text_model: TextModel
    info: EngineInfo

    def require_model(self, name: str) -> None:
        """Raise a 404 for any other model."""
        if name != self.info.model:
            message = f"The model '{name[:100]}' does not exist. This server has '{self.info.model}'."
            raise ApiError(404, message, param="model", code="model_not_found")


class Gateway:
    """The engine's client, the text half of its model, telemetry and the threads, with the state of it all.

    `text_model` is set once the model's files are there; `draining` by the first signal to stop.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        client: EngineClient,
        telemetry: Telemetry,
        callers: Callers | None = None,
    ) -> None:
        self.settings = settings
        self.callers = callers or Callers((), settings.keys)
        self.client = client
        self.telemetry = telemetry
        self.workers = TextWorkers(settings.text_workers, settings.max_waiting_texts)
        self.text_model: TextModel | None = None
        self.draining = False
        self.idle = asyncio.Event()  # set while no generation is between its arrival and its last byte
        self.idle.set()
        self._num_active = 0
        self.created = int(time.time())

    def enter(self) -> None:
        """A generation begins."""
        self._num_active += 1
        self.idle.clear()

    def leave(self) -> None:
        """A generation has ended."""
        self._num_active -= 1
        if not self._num_active:
            self.idle.set()

    @property
    def state(self) -> str:
        """`ready`, or why it isn't: starting, restarting, draining, failed, stopped."""
        if self.draining:
            return "draining"
        if self.client.state == "ready" and (self.text_model is None or self.client.info is None):
            return "starting"
        return self.client.state

    def serving(self) -> Serving:
        """The model that is served; raises a 503 that says why there is none at the moment."""
        state = self.state
        if state != "ready":
            raise ApiError(
                503,
                _REASONS[state],
                code=f"engine_{state}" if state != "draining" else "draining",
                retry_after_seconds=_RETRY_SECONDS.get(state),
                should_retry=state in _RETRY_SECONDS,
            )
        assert self.text_model is not None
        assert self.client.info is not None
        return Serving(self.text_model, self.client.info)
