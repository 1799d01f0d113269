"""Clients that others wrote, each installed where it disturbs nothing, against a server with a tiny model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.conftest import server, weights  # noqa: F401 - fixtures
from tests.support.server import ServerProcess

SCRIPTS = Path(__file__).parent / "scripts"
INSTALL_SECONDS = 900
RUN_SECONDS = 300

Run = Callable[..., dict[str, Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.torch)
            item.add_marker(pytest.mark.timeout(INSTALL_SECONDS + RUN_SECONDS))


def installed(directory: Path, packages: Sequence[str], install: Callable[[], None]) -> Path:
    """The directory with these packages in it, from an earlier run where that is possible."""
    stamp = directory / "installed"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != "\n".join(packages):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        install()
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return directory


def run(command: Sequence[str | Path], directory: Path, server: ServerProcess, *arguments: str) -> str:  # noqa: F811
    """Run a client's program and return what it prints."""
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "none",
        "MODEL": server.model,
        "HOME": str(directory),
    }
    result = subprocess.run(
        [*command, *arguments],
        cwd=directory,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="session")
def run_python(pytestconfig: pytest.Config, server: ServerProcess) -> Run:  # noqa: F811
    """Runs a script with these packages; what its last line prints is JSON."""

    def in_environment(script: str, *packages: str) -> dict[str, Any]:
        directory = pytestconfig.cache.mkdir("clients") / script.removesuffix(".py")
        python = directory / "venv" / "bin" / "python"

        def install() -> None:
            venv.create(directory / "venv", with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, timeout=INSTALL_SECONDS)

        installed(directory, packages, install)
        output = run([python, SCRIPTS / script], directory, server)
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    return in_environment


@pytest.fixture(scope="session")
def run_node(pytestconfig: pytest.Config, server: ServerProcess) -> Run:  # noqa: F811
    """The same for node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not there")

    def in_directory(script: str, *packages: str) -> dict[str, Any]:
        directory = pytestconfig.cache.mkdir("clients") / script.removesuffix(".mjs")

        def install() -> None:
            (directory / "package.json").write_text("{}", encoding="utf-8")
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
            subprocess.run(command, cwd=directory, check=True, timeout=INSTALL_SECONDS, capture_output=True)

        installed(directory, packages, install)
        # Node looks for packages beside the script.
        copy = shutil.copy(SCRIPTS / script, directory / script)
        output = run([node, copy], directory, server)
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    return in_directory
