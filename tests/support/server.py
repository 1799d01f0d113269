"""`jitney serve` in a process of its own, as operators run it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.support.plain_http import NO_CERTIFICATES

START_SECONDS = 240.0  # guards against hanging, never measures
PATIENCE_SECONDS = 60.0
_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
_RUN = "from gateway.cli import main; main()"


class ServerProcess:
    """A server on a free port with its log in a file."""

    def __init__(self, log: Path, *arguments: str, key: str | None = None) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUN, "serve", "--port", "0", *arguments], stderr=output, stdout=output
            )
        self.key = key
        self.port = 0
        self.model = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait_listening(self) -> None:
        """Wait for the port."""
        assert eventually(lambda: self.ended or _LISTENING.search(self.log) is not None, START_SECONDS), self.log
        found = _LISTENING.search(self.log)
        assert found is not None, self.log
        self.port = int(found.group(1))

    def wait_ready(self) -> None:
        """Wait until requests are taken."""
        self.wait_listening()
        with self.client() as client:
            assert eventually(lambda: self.ended or client.get("/ready").status_code == 200, START_SECONDS), self.log
            assert not self.ended, self.log
            self.model = client.get("/v1/models").json()["data"][0]["id"]

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def client(self, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        options = {"timeout": PATIENCE_SECONDS, "trust_env": False, "verify": NO_CERTIFICATES, **options}
        return httpx.Client(base_url=self.url, headers=headers, **options)

    def engine(self) -> psutil.Process:
        """The engine process, once there is one."""
        server = psutil.Process(self.process.pid)
        assert eventually(lambda: bool(server.children())), self.log
        (engine,) = server.children()
        return engine

    def stop(self) -> int:
        """End it in an orderly way; the exit status."""
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait for a condition; False where it doesn't come to hold."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def serving(log: Path, *arguments: str, key: str | None = None) -> Iterator[ServerProcess]:
    """A server that is ready."""
    server = ServerProcess(log, *arguments, key=key)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()
