"""The example of a stranger's package: installed into a fresh environment, found, checked, and in force there."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.contracts.tree import ROOT

PACKAGE = ROOT / "examples" / "my_first_policy"
JITNEY = "from gateway.cli import main; main()"
ORDER = """
from core_engine import Request, SamplingParams
from core_engine.testkit import simulated_engine

def ended(policies):
    engine, _ = simulated_engine(policies, sequence_limit=1)
    for name, tokens in (("long", 100), ("short", 10)):
        sampling = SamplingParams(max_tokens=4)
        engine.submit(Request(id=name, model="simulated", prompt_token_ids=[1] * tokens, sampling=sampling))
    order = []
    while engine.has_work:
        order += [outcome.request_id for outcome in engine.step().finished]
    return order

print(ended([]), ended(["short_prompts:max_prompt_tokens=20"]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the package, and what is installed here besides."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed = f"{ROOT}\nimport site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (directory / "lib" / version / "site-packages" / "installed_here.pth").write_text(installed)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    # What it needs is here already, the tool that builds it too: nothing is fetched.
    run([*pip, "--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir", str(PACKAGE)])
    return python


def run(command: list[str]) -> str:
    directory = Path(command[0]).parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed_with_its_options(python: Path) -> None:
    shown = run([str(python), "-c", JITNEY, "policies", "show", "short_prompts"])
    assert "short_prompts (my-first-policy 0.1.0: my_first_policy:ShortPrompts)" in shown
    assert "option: max_prompt_tokens=256 (integer from 1)" in shown
    assert "Guarantees that whoever has waited `max_wait_iterations` (200) is next." in shown


def test_it_passes_the_conformance_kit(python: Path) -> None:
    report = run([str(python), "-c", JITNEY, "policies", "check", "short_prompts", "--workloads", "10", "--no-cost"])
    assert report.startswith("short_prompts: passed")
    assert "promised 200" in report


def test_it_decides(python: Path) -> None:
    assert run([str(python), "-c", ORDER]).strip() == "['long', 'short'] ['short', 'long']"


def test_it_is_about_thirty_lines() -> None:
    lines = (PACKAGE / "my_first_policy.py").read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith(('"""', "from ", "import "))]
    assert len(code) <= 30
