"""The command line: what it takes, and how it says what is wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from core_engine import EngineConfig
from core_engine.lab.bench import Scenario
from gateway.cli import main
from gateway.commands.options import Size, read_config, read_keys
from gateway.commands.serve import serve
from tests.support.tiny_model import write_tiny_model

pytestmark = pytest.mark.slow


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["serve", "--executor", "simulated", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "serve" in result.output
    assert "bench" in result.output


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.startswith("jitney, version ")


def test_help_imports_nothing_heavy() -> None:
    program = "import sys, gateway.cli; print([m for m in ('litestar', 'core_engine', 'torch') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_every_engine_option_can_be_given() -> None:
    options = {parameter.name for parameter in serve.params}
    given_otherwise = {"model", "task", "objectives", "memory_sharers", "tenant_weights"}
    assert set(EngineConfig.__struct_fields__) - given_otherwise <= options


def test_every_option_says_what_it_does() -> None:
    for parameter in serve.params:
        assert isinstance(parameter, click.Option)
        assert parameter.help or parameter.metavar, parameter.name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "70000"), "--port"),
        (("--token-limit", "8"), "token_limit"),
        (("--block-size", "7"), "--block-size"),
        (("--kv-memory", "lots"), "512M"),
        (("--kv-memory-fraction", "2"), "--kv-memory-fraction"),
        (("--api-key", ""), "empty"),
        (("--drain-seconds", "-1"), "--drain-seconds"),
        (("--threads", "100000"), "--threads: expected `int` <= 1024"),
        (("--admin-key", ""), "--admin-key"),
        (("--tool-parser", "nope"), "--tool-parser: 'nope' is not one of auto, hermes"),
    ],
)
def test_a_wrong_option_is_named(arguments: tuple[str, ...], said: str) -> None:
    status, output = run(*arguments)
    assert status != 0
    assert said in output


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# none yet\n", encoding="utf-8")
    assert "has none" in run("--api-key-file", str(path))[1]


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, output = run("--model", str(tmp_path), "--port", port)
    assert status == 1
    assert f"can't listen on 127.0.0.1:{port}" in output
    assert "--port" in output


@pytest.mark.parametrize(
    ("missing", "policy", "said"),
    [("config.json", "fcfs", "config.json"), ("tokenizer.json", "fcfs", "tokenizer.json"), ("", "nobody", "nobody")],
)
def test_a_failed_start_ends_the_server_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, missing: str, policy: str, said: str
) -> None:
    model = write_tiny_model(tmp_path / "model")
    if missing:
        (model / missing).unlink()
    status, output = run("--model", str(model), "--port", "0", "--policy", policy)
    assert status == 1
    assert said in caplog.text + output
    assert "Traceback" not in caplog.text + output


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("2K", 2048), ("512M", 512 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("1 MB", 1 << 20)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1X", "1.2.3"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="512M or 2G"):
        Size().convert(text, None, None)


def test_keys_are_read_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n\n  two \n# three\n", encoding="utf-8")
    assert read_keys(path) == ["one", "two"]


def test_the_scheduler_bench_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core_engine.lab.bench.run_scheduler_bench.__defaults__", (10, (Scenario("decode", 4, 0),)))
    result = CliRunner().invoke(main, ["bench", "scheduler", "--json", "--iterations", "10"])
    (row,) = json.loads(result.output)["scenarios"]
    assert (row["kind"], row["running"]) == ("decode", 4)
    assert row["median_seconds"] > 0
    table = CliRunner().invoke(main, ["bench", "scheduler", "--iterations", "10"]).output
    assert "decode" in table


def test_a_file_of_options_is_read_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "jitney.toml"
    path.write_text(
        'token_limit = 256\nsequence_limit = 8\npolicies = ["orca:max_batch=4"]\n'
        "[objectives.interactive]\ntime_to_first_token_seconds = 0.5\n"
        '[[keys]]\nkey = "sk-a"\ntenant = "acme"\nclass_name = "interactive"\n',
        encoding="utf-8",
    )
    options = read_config(path)
    assert options["objectives"] == {"interactive": {"time_to_first_token_seconds": 0.5}}
    status, output = run("--config", str(path), "--token-limit", "4")
    assert status == 1
    assert "token_limit 4 is below sequence_limit 8" in output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("token_limt = 3", "did you mean token_limit"),
        ("token_limit =", "is not TOML"),
        ("[objectives.a]\ntime_to_first_token_seconds = -1", "time_to_first_token_seconds"),
        ('[[keys]]\nkey = "a"\ntenant = "a b"', "tenant"),
        ('[[keys]]\nkey = "a"\ncolour = "red"', "`colour`; there are tenant"),
        ('policies = "orca"', "jitney.toml: policies: expected `array`"),
        ('[models]\nmodel = "org/a"', "jitney.toml: models: expected `array"),
        ('dtype = "int4"', "jitney.toml: dtype: 'int4' is not one of auto, bfloat16"),
        ("memory_sharers = 2", "there is no option 'memory_sharers'"),
    ],
)
def test_a_wrong_file_of_options_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "jitney.toml"
    path.write_text(text, encoding="utf-8")
    status, output = run("--config", str(path))
    assert status == 2
    assert said in output


def test_bench_gateway_counts_the_events_of_all_streams(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    arguments = ["--model", str(model), "--clients", "3", "--tokens", "20", "--tokens-per-second", "300"]
    result = CliRunner().invoke(main, ["bench", "gateway", *arguments, "--force", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["clients"] == 3
    assert 0 < report["events"] <= report["tokens"] + 3  # what ends a stream comes as an event of its own
    assert report["gap_seconds"]["p50"] > 0


def test_bench_online_measures_a_server_of_its_own(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    options = [f"--serve-option={each}" for each in ("--executor", "simulated", "--model", str(model))]
    arguments = ["--rate", "8", "--seconds", "1", *options]
    result = CliRunner().invoke(main, ["bench", "online", *arguments, "--force", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["errors"] == 0
    assert report["requests"] >= 1
    assert report["normalised_latency_seconds"]["p50"] > 0
