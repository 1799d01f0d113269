"""Clients that others wrote, each installed where it disturbs nothing, against real servers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.conftest import server, weights  # noqa: F401 - fixtures
from tests.clients.scripted import Address, scripted_gateway

SCRIPTS = Path(__file__).parent / "scripts"
INSTALL_SECONDS = 900
RUN_SECONDS = 300

Run = Callable[..., dict[str, Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(INSTALL_SECONDS + RUN_SECONDS))


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with scripted_gateway(tmp_path_factory.mktemp("scripted") / "tiny") as address:
        yield address


def installed(directory: Path, packages: Sequence[str], commands: Sequence[Sequence[str | Path]]) -> None:
    """Have these packages in the directory, from an earlier run where that is possible; else skip, with the reason."""
    stamp = directory / "installed"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == "\n".join(packages):
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for command in commands:
        done = subprocess.run(
            command, cwd=directory, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
        if done.returncode != 0:
            pytest.skip(f"{' '.join(packages)} can't be installed here: {(done.stderr or done.stdout)[-500:]}")
    stamp.write_text("\n".join(packages), encoding="utf-8")


def place(config: pytest.Config, packages: Sequence[str]) -> Path:
    """Where the environment with these packages is kept, by the name of the first."""
    return config.cache.mkdir("clients") / re.split(r"[^\w-]", packages[0])[0]


def run(command: Sequence[str | Path], directory: Path, address: Address, *arguments: str) -> dict[str, Any]:
    """Run a client's program; what its last line prints is JSON."""
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{address.url}/v1",
        "OPENAI_API_KEY": "none",
        "MODEL": address.model,
        "HOME": str(directory),
        "HF_HUB_OFFLINE": "1",
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
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="session")
def run_python(pytestconfig: pytest.Config) -> Run:
    """Runs a script in an environment with these packages."""

    def in_environment(address: Address, script: str, *packages: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
        directory = place(pytestconfig, packages)
        python = directory / "venv" / "bin" / "python"
        pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        installed(directory, packages, [[sys.executable, "-m", "venv", directory / "venv"], [*pip, *packages]])
        return run([python, SCRIPTS / script], directory, address, *arguments)

    return in_environment


@pytest.fixture(scope="session")
def run_node(pytestconfig: pytest.Config) -> Run:
    """The same for node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not there")

    def in_directory(address: Address, script: str, *packages: str) -> dict[str, Any]:
        directory = place(pytestconfig, packages)
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", ".", *packages]
        installed(directory, packages, [command])
        # Node looks for packages beside the script.
        copy = shutil.copy(SCRIPTS / script, directory / script)
        return run([node, copy], directory, address)

    return in_directory
