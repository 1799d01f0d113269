"""A server of our own, started for a measurement with given options, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

_READY_SECONDS = 300.0
_ANSWER_SECONDS = 600.0  # a guard against hanging, far above what any request takes


class Served:
    """A running server: where it listens and how to speak to its operator's side."""

    def __init__(self, base_url: str, admin_key: str, client: httpx.AsyncClient, pid: int) -> None:
        self.base_url = base_url
        self.client = client
        self.pid = pid  # of the gateway, whose child the engine is
        self._admin = {"authorization": f"Bearer {admin_key}"}

    async def swap(self, *policies: str) -> dict[str, Any]:
        """Put these policies in force; raises httpx.HTTPStatusError where they are refused."""
        answer = await self.client.post("/admin/policies", json={"policies": policies}, headers=self._admin)
        return dict(answer.raise_for_status().json())

    async def history(self) -> list[dict[str, Any]]:
        """Every change of policies so far."""
        answer = await self.client.get("/admin/policies/history", headers=self._admin)
        return list(answer.raise_for_status().json()["history"])

    async def metric(self, name: str) -> float:
        """A metric, summed over its labels; 0 where nothing was counted yet."""
        text = (await self.client.get("/metrics")).raise_for_status().text
        lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextlib.asynccontextmanager
async def served(
    options: Sequence[str], *, keys: Mapping[str, str] | None = None, plugins: Path | None = None
) -> AsyncIterator[Served]:
    """`jitney serve` with these options, ready for requests.

    `keys`: API key to tenant. `plugins`: a directory with further distributions that it finds.
    Raises RuntimeError where it ends before it is ready.
    """
    admin_key = secrets.token_hex(8)
    environment = dict(os.environ)
    if plugins is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(plugins), environment.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.toml"
        tenants = "".join(f'[[keys]]\nkey = "{key}"\ntenant = "{tenant}"\n' for key, tenant in (keys or {}).items())
        config.write_text(f"public_metrics = true\n{tenants}")
        port = _free_port()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from gateway.cli import main; main()", "serve"),
            *("--config", str(config), "--port", str(port), "--admin-key", admin_key, *options),
            env=environment,
        )
        base_url = f"http://127.0.0.1:{port}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        try:
            async with httpx.AsyncClient(base_url=base_url, timeout=_ANSWER_SECONDS, limits=limits) as client:
                await asyncio.wait_for(_wait_ready(client, process), _READY_SECONDS)
                yield Served(base_url, admin_key, client, process.pid)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def _wait_ready(client: httpx.AsyncClient, process: asyncio.subprocess.Process) -> None:
    while process.returncode is None:
        with contextlib.suppress(httpx.TransportError):
            if (await client.get("/ready")).status_code == 200:
                return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"the server ended with status {process.returncode} before it was ready")


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
