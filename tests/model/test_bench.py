"""`jitney bench` on a model: every figure is there, and follows from the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.bench import quiet
from gateway.cli import main

MakeModel = Callable[..., Path]


def bench(*arguments: str) -> dict[str, Any]:
    result = CliRunner(catch_exceptions=False).invoke(main, ["bench", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.fixture
def llama(model_directory: MakeModel) -> str:
    """A model whose context is long enough for the workloads."""
    directory = model_directory()
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 1024}))
    return str(directory)


def test_offline_beside_transformers(llama: str) -> None:
    report = bench(
        *("offline", "--model", llama, "--dtype", "float32", "--force"),
        *("--runs", "2", "--requests", "3", "--versus", "transformers"),
    )
    assert (report["workload"], report["dtype"], report["requests"], report["runs"]) == ("offline", "float32", 3, 2)
    assert report["floor_ratio"]["median"] == pytest.approx(
        report["wall_seconds"]["median"] / report["floor_seconds"], rel=1e-2
    )
    assert report["transformers"]["times_faster"] == pytest.approx(
        report["transformers"]["wall_seconds"]["median"] / report["wall_seconds"]["median"], rel=1e-2
    )
    assert report["wall_seconds"]["min"] <= report["wall_seconds"]["median"] <= report["wall_seconds"]["max"]
    assert report["quiet"] in (True, False)
    shares = report["shares"]
    assert sorted(shares) == ["attention", "linear", "other"]
    assert all(0 < share < 1 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)  # each is rounded


def test_single_is_compared_with_the_reading_of_all_weights(llama: str) -> None:
    report = bench("single", "--model", llama, "--force", "--runs", "1")
    floor = bench("floor", "--model", llama, "--force")
    num_bytes, iterations = floor["weight_bytes"], report["iterations"]
    assert 0 < report["floor_seconds"] < 1
    assert iterations == 128
    assert num_bytes > 0


def test_a_busy_machine_gets_an_error_instead_of_figures(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet.Watch, "foreign_cores", lambda self: 0.8)
    result = CliRunner().invoke(main, ["bench", "floor", "--model", llama, "--json"])
    assert result.exit_code == 1
    assert "0.80 cores" in result.stderr
    assert "--force" in result.stderr
    assert not result.stdout
