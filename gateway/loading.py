"""Models that come and go while others serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from core_engine import ConfigurationError, EngineClient, EngineUnavailable, ModelError
from gateway.cores import wait_asleep
from gateway.deployment import Deployment
from gateway.errors import ApiError, invalid
from gateway.served_model import ServedModel, unavailable
from gateway.state import Gateway

logger = logging.getLogger("jitney")


class ModelLoader:
    """Loads and unloads models; whatever becomes of one, the others don't notice."""

    def __init__(self, gateway: Gateway, deployment: Deployment) -> None:
        self._gateway = gateway
        self._deployment = deployment

    async def load(self, table: Mapping[str, Any]) -> ServedModel:
        """Load the model that a table like one of [[models]] describes; returns once it serves.

        Raises ApiError: 400 for wrong options and for a model that can't be loaded, 409 for a name that is
        taken and where as many models are loaded as may be.
        """
        gateway = self._gateway
        if gateway.draining:
            raise unavailable("draining")
        try:
            settings = self._deployment.model(table, num_sharers=len(gateway.models) + 1)
        except ConfigurationError as error:
            raise invalid(str(error), code="invalid_model_options") from error
        for name in (settings.name, *settings.aliases):
            if gateway.find(name) is not None:
                message = f"A model is called '{name}' already."
                raise ApiError(409, message, param="name", code="model_exists", should_retry=False)
        limit = gateway.settings.max_models
        if len(gateway.models) >= limit:
            message = f"{limit} models are loaded, which is the limit: unload one, or start with a higher --max-models."
            raise ApiError(409, message, code="too_many_models", should_retry=False)
        wait_asleep()
        model = ServedModel(settings, EngineClient(settings.config))
        gateway.add(model)
        try:
            await model.bring_up()
        except (EngineUnavailable, ModelError) as error:
            await self._end(model)
            raise invalid(f"The model can't be loaded: {error}.", "model", code="model_not_loaded") from error
        return model

    async def unload(self, model: ServedModel) -> None:
        """Take no more requests, let those that run finish until the deadline of drains, and end the engine.

        Raises ApiError, a 409 for a model that is being unloaded.
        """
        if model.unloading:
            raise ApiError(409, f"'{model.name}' is being unloaded already.", code="model_unloading")
        model.unloading = True
        logger.info("unloading %s", model.name)
        try:
            async with asyncio.timeout(self._gateway.settings.drain_seconds):
                await model.activity.idle.wait()
        except TimeoutError:
            logger.info("requests of %s did not finish in time", model.name)
        await self._end(model)

    async def _end(self, model: ServedModel) -> None:
        await model.stop()
        self._gateway.remove(model)
