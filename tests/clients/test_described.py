"""Requests made up from the server's own document: none is its fault, none has an answer off the document."""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import Run
from tests.support.server import serving
from tests.support.tiny_model import write_tiny_model

PER_OPERATION, SEED = "125", "1"
PACKAGES = ("schemathesis>=4.32,<5", "openapi-spec-validator>=0.9,<1")


def test_schemathesis(run_python: Run, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    models = ("--model", str(model), "--embedding-model", f"embed={model}")
    # A short context, since most requests don't say where to stop.
    options = ("--executor", "simulated", "--max-model-len", "128", "--data-dir", str(tmp_path / "data"))
    with serving(tmp_path / "log", *models, *options) as server:
        result = run_python(server, "use_schemathesis.py", *PACKAGES, arguments=[PER_OPERATION, SEED, "embed"])
    assert not result["failed"], result["told"]
    assert result["generated"] >= 2000
