"""Gateway: what all routes share, and whether it can serve."""

from __future__ import annotations

import asyncio

from core_engine import Callers, Kind
from gateway.errors import ApiError, invalid
from gateway.served_model import ServedModel, Serving, unavailable
from gateway.settings import GatewaySettings
from gateway.telemetry import Telemetry
from gateway.workers import TextWorkers

_MAX_NAMES_SHOWN = 8
_MISSING: dict[Kind, str] = {
    "generate": "this server has no model for text",
    "embed": "this server has no embedding model, which --embedding-model would add",
}


class Gateway:
    """The models that are served, telemetry and the threads, with the state of it all.

    `draining` is set by the first signal to stop.
    """

    def __init__(self, settings: GatewaySettings, telemetry: Telemetry, callers: Callers | None = None) -> None:
        self.settings = settings
        self.callers = callers or Callers((), settings.keys)
        self.telemetry = telemetry
        self.workers = TextWorkers(settings.text_workers, settings.max_waiting_texts)
        self.models: list[ServedModel] = []
        self.draining = False
        self._named_at_start: list[ServedModel] = []

    def add(self, model: ServedModel, *, named_at_start: bool = False) -> None:
        """Take in a model; one that was named at start is waited for before the server counts as ready."""
        client = model.client
        self.telemetry.add_model(model.name, model.names[1:], engine_state=lambda: client.state)
        client.listeners.append(lambda message: self.telemetry.observe(model.name, message))
        self.models.append(model)
        if named_at_start:
            self._named_at_start.append(model)

    def remove(self, model: ServedModel) -> None:
        """Forget a model; without effect for one that is gone already."""
        if model in self.models:
            self.models.remove(model)
            self.telemetry.remove_model(model.name)
        if model in self._named_at_start:
            self._named_at_start.remove(model)

    async def stop(self) -> None:
        """End all engines; what still runs ends with an error that its client sees."""
        await asyncio.gather(*(model.stop() for model in self.models))

    @property
    def is_busy(self) -> bool:
        """Whether a request of any model is between its arrival and its last byte."""
        return not all(model.activity.idle.is_set() for model in self.models)

    async def idle(self) -> None:
        """Wait until no model is busy."""
        await asyncio.gather(*(model.activity.idle.wait() for model in self.models))

    @property
    def state(self) -> str:
        """`ready`, or why it isn't: draining, empty, or the state of a model that was named at start."""
        if self.draining:
            return "draining"
        if not self.models:
            return "empty"
        return next((model.state for model in self._named_at_start if model.state != "ready"), "ready")

    def require_ready(self) -> None:
        """Raise a 503 unless every model named at start serves."""
        if self.state != "ready":
            raise unavailable(self.state)

    def require_open(self) -> None:
        """Raise a 503 where a request would be refused whatever it says: before its body is read."""
        if self.draining or not any(model.state == "ready" for model in self.models):
            self.require_ready()

    def find(self, name: str) -> ServedModel | None:
        """The model that goes by this name or alias."""
        return next((model for model in self.models if name in model.names), None)

    def model(self, name: str | None) -> ServedModel:
        """The same, without a name the first of all; raises a 404 where there is none."""
        model = self.find(name) if name is not None else next(iter(self.models), None)
        if model is not None:
            return model
        known = ", ".join(f"'{model.name}'" for model in self.models[:_MAX_NAMES_SHOWN])
        message = f"The model '{(name or '')[:100]}' does not exist. This server has {known or 'none'}."
        raise ApiError(404, message, param="model", code="model_not_found")

    def serving(self, name: str | None = None, kind: Kind | None = "generate") -> Serving:
        """That model, ready for requests of a kind, or of any; raises a 400 where it isn't for that, a 503 for now."""
        if self.draining:
            raise unavailable("draining")
        model = self.model(name)
        if kind is not None and model.kind != kind:
            raise self._wrong_kind(model, kind)
        return model.serving()

    def _wrong_kind(self, model: ServedModel, kind: Kind) -> ApiError:
        use = "gives embeddings, not text" if kind == "generate" else "gives text, not embeddings"
        others = [f"'{other.name}'" for other in self.models if other.kind == kind][:_MAX_NAMES_SHOWN]
        instead = f"use {' or '.join(others)}" if others else _MISSING[kind]
        return invalid(f"The model '{model.name}' {use}; {instead}.", param="model", code="model_not_supported")
