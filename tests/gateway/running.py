"""A gateway on a real socket, in a thread of this process, in front of a fake engine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec
import uvicorn
from litestar.types import ASGIApp

from core_engine.text import TextModel
from gateway.app import build_app
from gateway.batches.endpoints import Counter
from gateway.batches.service import open_batches
from gateway.deployment import Deployment
from gateway.loading import ModelLoader
from gateway.responses_api.service import open_responses
from gateway.served_model import ServedModel
from gateway.server import bind
from gateway.settings import GatewaySettings
from gateway.state import Gateway
from gateway.storage import data_directory
from gateway.telemetry import Telemetry
from gateway.wire import bounded_protocol
from tests.gateway.fake_engine import MODEL, FakeEngineClient, Script, engine_info
from tests.support.plain_http import NO_CERTIFICATES

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class RunningGateway:
    """What a test talks to: `http` like a client, `engine` and `gateway` from behind."""

    def __init__(self, text_model: TextModel, settings: GatewaySettings, model_options: dict[str, Any]) -> None:
        self.text_model = text_model
        self.eos = text_model.eos_token_ids[0]
        self.engine = FakeEngineClient(engine_info(text_model.vocab_size, text_model.eos_token_ids), self.saying("Hi."))
        self.settings = settings
        self._deployment = Deployment({"model": MODEL, **model_options})
        self.listener = bind("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False, verify=NO_CERTIFICATES)
        self.gateway: Gateway
        self.model: ServedModel
        self.app: ASGIApp
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def saying(self, *texts: str, end: bool = True, **options: Any) -> Script:
        """A script by which sample i says texts[i] (the last one where there are fewer), then ends."""
        spoken = [self.text_model.encode(text, add_special_tokens=False) + [self.eos] * end for text in texts]
        return Script(tokens=lambda request, index: spoken[min(index, len(spoken) - 1)], **options)

    async def _run(self) -> None:
        telemetry = Telemetry()
        telemetry.start()
        self.gateway = Gateway(self.settings, telemetry)
        self.model = ServedModel(self._deployment.models[0], self.engine, self.text_model)  # type: ignore[arg-type]
        self.gateway.add(self.model, named_at_start=True)
        async with contextlib.AsyncExitStack() as cleanup:
            directory = Path(self.settings.data_dir or cleanup.enter_context(TemporaryDirectory()))
            responses = await cleanup.enter_async_context(open_responses(data_directory(str(directory)), self.settings))
            batches = None
            if self.settings.data_dir is not None:
                batches = await cleanup.enter_async_context(
                    open_batches(Counter(self.gateway, responses.store), directory)
                )
            await self._serve(build_app(self.gateway, ModelLoader(self.gateway, self._deployment), responses, batches))
        await self.gateway.stop()
        self.gateway.workers.close()
        telemetry.shutdown()

    async def _serve(self, app: ASGIApp) -> None:
        self.app = app
        config = uvicorn.Config(
            app,
            http=bounded_protocol(self.settings),
            ws="none",
            lifespan="off",
            log_config=None,
            server_header=False,
            timeout_keep_alive=self.settings.keep_alive_seconds,
            timeout_graceful_shutdown=1,
        )
        self.server = _Server(config)
        self._started.set()
        await self.server.serve([self.listener])

    def start(self) -> None:
        self._thread.start()
        while not (self._started.wait(0.01) and self.server.started):
            assert self._thread.is_alive(), "the server did not start"

    def stop(self) -> None:
        self.http.close()
        self.server.end()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json={"model": MODEL, **body})

    def chat(self, **fields: Any) -> httpx.Response:
        return self.post(CHAT, **{"messages": [{"role": "user", "content": "Hello"}], **fields})

    def complete(self, **fields: Any) -> httpx.Response:
        return self.post(COMPLETIONS, **{"prompt": "Hello", **fields})


class _Server(uvicorn.Server):
    """Ends at once where nothing runs; uvicorn's takes 0.2 s, which is longer than most tests."""

    async def main_loop(self) -> None:
        self._end, self._loop = asyncio.Event(), asyncio.get_running_loop()
        await self.on_tick(0)
        await self._end.wait()

    def end(self) -> None:
        """Callable from any thread."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        for listener in self.servers:
            listener.close()


@contextmanager
def running_gateway(
    text_model: TextModel, model_options: dict[str, Any] | None = None, **settings: Any
) -> Iterator[RunningGateway]:
    running = RunningGateway(text_model, msgspec.structs.replace(GatewaySettings(), **settings), model_options or {})
    running.start()
    try:
        yield running
    finally:
        running.stop()
