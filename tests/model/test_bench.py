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


def test_the_memory_floor_is_that_of_the_numbers_in_the_file(llama: str) -> None:
    num_bytes = {}
    file = Path(llama) / "config.json"
    for dtype in ("float32", "bfloat16"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": dtype}))
        num_bytes[dtype] = bench("floor", "--model", llama, "--dtype", "float32", "--force")["weight_bytes"]
    assert num_bytes["float32"] == 2 * num_bytes["bfloat16"]


def test_a_busy_machine_gets_an_error_instead_of_figures(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet.Watch, "foreign_cores", lambda self: 0.8)
    result = CliRunner().invoke(main, ["bench", "floor", "--model", llama, "--json"])
    assert result.exit_code == 1
    assert "0.80 cores" in result.stderr
    assert "--force" in result.stderr
    assert not result.stdout


def test_iteration_says_in_words_what_grows(llama: str) -> None:
    report = bench("iteration", "--model", llama, "--dtype", "float32", "--force")
    assert [point["running"] for point in report["by_running"]] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [point["context_tokens"] for point in report["by_context"]] == [128, 256, 512]
    assert f"by {report['kv_bytes_per_token']:,} bytes a token" in report["growth"]
    assert report["weight_bytes"] > 0


@pytest.mark.full
def test_capacity_compares_scheduling_under_every_bound(llama: str, tmp_path: Path) -> None:
    kept = str(tmp_path / "capacity.jsonl")
    options = ("capacity", "--model", llama, "--dtype", "float32", "--force", "--keep", kept)
    options += ("--requests", "8", "--rates", "2", "--batch-size", "4")
    simulated, report = bench(*options, "--minutes", "0"), bench(*options)
    assert (simulated["complete"], report["complete"]) == (False, True)
    assert simulated["systems"] == report["systems"]
    assert len(report["rates_measured"]) == 2
    for rows in report["tables"].values():
        assert [(row["percentile"], row["factor"]) for row in rows] == [(p, k) for p in (99, 50) for k in (2, 3, 5, 10)]
        assert all(row["ratio"] > 0 and row["share_of_simulated"] > 0 for row in rows)
    result = CliRunner().invoke(main, ["bench", *options, "--threads", "1"])
    assert result.exit_code == 2
    assert "name another file" in result.stderr


def test_a_picture_of_an_unknown_kind_is_refused_before_measuring() -> None:
    result = CliRunner().invoke(main, ["bench", "capacity", "--plot", "curve.jpeg"])
    assert result.exit_code == 2
    assert ".png or .svg" in result.stderr or "jitney[plot]" in result.stderr


def test_an_iteration_is_taken_apart(llama: str) -> None:
    report = bench("iteration", "--profile", "--model", llama, "--force")
    assert [each["iteration"] for each in report["iterations"]] == [
        "a prompt of 512 tokens",
        *(f"a token of {n} sequences" for n in (1, 8, 64)),
    ]
    for each in report["iterations"]:
        operations = each["operations"]
        assert {"linear/down", "attention/attend", "other/add_rms_norm", "other/rest"} <= set(operations)
        assert sum(operation["seconds"] for operation in operations.values()) == pytest.approx(
            each["timed_seconds"], rel=0.02
        )
        assert sum(each["shares"].values()) == pytest.approx(1, abs=1e-3)
        assert any(".py:" in name for name in each["python_functions"])  # which of them, time decides
        assert any(name.startswith(("aten::", "mkldnn::")) for name in each["torch_operations"])


def test_a_profile_has_nothing_to_draw() -> None:
    result = CliRunner().invoke(main, ["bench", "iteration", "--profile", "--plot", "pictures"])
    assert result.exit_code == 2
    assert "leave out one of them" in result.stderr or "jitney[plot]" in result.stderr
