"""`serve`: one gateway process with its engines, from the first log line to the end of the drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn
from litestar.types import ASGIApp

from core_engine import Callers, ConfigurationError, EngineClient, EngineUnavailable, ModelError
from gateway.app import build_app
from gateway.batches.endpoints import Counter
from gateway.batches.service import open_batches
from gateway.cores import wait_asleep
from gateway.cors import is_loopback_host
from gateway.deployment import Deployment, ModelSettings
from gateway.loading import ModelLoader
from gateway.responses_api.service import open_responses
from gateway.served_model import ServedModel
from gateway.settings import GatewaySettings
from gateway.state import Gateway
from gateway.storage import data_directory
from gateway.telemetry import Telemetry
from gateway.wire import bounded_protocol

logger = logging.getLogger("jitney")

# For the last bytes of answers that are complete, once nothing generates any more.
FLUSH_SECONDS = 5


async def serve(deployment: Deployment, settings: GatewaySettings) -> int:
    """Serve until a signal or a failure at start; returns the exit status.

    Raises ConfigurationError where the address can't be had or data can't be kept, before anything is started.
    """
    first = deployment.models[0].config
    async with contextlib.AsyncExitStack() as cleanup:
        listener = cleanup.enter_context(bind(settings.host, settings.port))
        telemetry = Telemetry()
        telemetry.start()
        cleanup.callback(telemetry.shutdown)
        # Callers are identified before it is known which model they want: by the policies of the first.
        gateway = Gateway(settings, telemetry, Callers(first.policies, settings.keys))
        cleanup.callback(gateway.workers.close)
        directory = data_directory(settings.data_dir)
        responses = await cleanup.enter_async_context(open_responses(directory, settings))
        if len(deployment.models) > 1:
            wait_asleep()
        for model in deployment.models:
            gateway.add(ServedModel(model, EngineClient(model.config)), named_at_start=True)
        batches = await cleanup.enter_async_context(open_batches(Counter(gateway, responses.store), directory))
        app = build_app(gateway, ModelLoader(gateway, deployment), responses, batches)
        server = _Server(_server_config(app, settings))
        lifecycle = Lifecycle(gateway, server)
        lifecycle.watch_signals()
        listener.listen(server.config.backlog)  # before it is said, so that who reads it may come at once
        _log_listening(listener, deployment, settings)
        cleanup.push_async_callback(gateway.stop)
        bringing_up = asyncio.ensure_future(lifecycle.bring_up())
        cleanup.callback(bringing_up.cancel)
        await server.serve([listener])
    return lifecycle.exit_status


def _server_config(app: ASGIApp, settings: GatewaySettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_protocol(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address; raises ConfigurationError where that can't be."""
    with contextlib.ExitStack() as on_failure:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = on_failure.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            raise ConfigurationError(
                f"can't listen on {host}:{port}: {error.strerror}; choose another address with --host and --port"
            ) from error
        on_failure.pop_all()
    return listener


class Lifecycle:
    """Takes the gateway up, and down again in an orderly way.

    The first signal turns readiness off and lets running requests finish until the deadline; the second ends
    everything at once. uvicorn's own handlers would tell the application only after the last request.
    """

    def __init__(self, gateway: Gateway, server: uvicorn.Server) -> None:
        self.exit_status = 0
        self._gateway = gateway
        self._server = server
        self._hurry = asyncio.Event()
        self._draining: asyncio.Future[None] | None = None

    def watch_signals(self) -> None:
        """Handle SIGTERM and SIGINT from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def stop(self) -> None:
        """Begin to drain, or end at once where that has begun already."""
        if self._draining is not None:
            self._hurry.set()
            return
        self._draining = asyncio.ensure_future(self._drain())

    async def bring_up(self) -> None:
        """Bring up the models named at start; end the server if one fails: that wants a person."""
        try:
            await asyncio.gather(*(model.bring_up() for model in self._gateway.models))
        except (EngineUnavailable, ModelError) as error:
            if self._draining is None:
                if isinstance(error, ModelError):  # of an engine its supervisor has told
                    logger.error("%s", error)  # noqa: TRY400 - a traceback would tell a person less
                self.exit_status = 1
                self._server.should_exit = True

    async def _drain(self) -> None:
        gateway = self._gateway
        gateway.draining = True
        if gateway.is_busy:
            seconds = gateway.settings.drain_seconds
            logger.info("stopping: running requests have %g s to finish; a second signal stops at once", seconds)
            waits = [asyncio.ensure_future(wait) for wait in (gateway.idle(), self._hurry.wait())]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        await gateway.stop()
        self._server.force_exit = self._hurry.is_set()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to Lifecycle."""
        yield


def _called(model: ModelSettings) -> str:
    """The model's name, with what it is loaded from where that is another."""
    return model.name if model.name == model.config.model else f"{model.name} ({model.config.model})"


def _log_listening(listener: socket.socket, deployment: Deployment, settings: GatewaySettings) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    logger.info(
        "listening on http://%s:%d, loading %s",
        shown,
        port,
        ", ".join(map(_called, deployment.models)),
    )
    num_sharers = max(model.config.memory_sharers for model in deployment.models)
    if num_sharers > 1:
        logger.info("memory for keys and values: %d models take an equal part of the fraction each", num_sharers)
    if not settings.keys and not is_loopback_host(host):
        logger.warning("anybody who reaches %s can use this server: set --api-key to change that", shown)
