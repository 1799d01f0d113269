"""`jitney policies`: what it prints, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.testkit.packages import install

RAISES = "tests.testkit.bad:Raises"

pytestmark = pytest.mark.slow


def jitney(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["policies", *arguments])


def test_list_names_policies_with_hooks_and_options() -> None:
    result = jitney("list")
    assert result.exit_code == 0
    assert "orca\n    Iteration-level FCFS as in Algorithm 1" in result.stdout
    assert "options: max_batch=32 (integer 1 to 4096), output=declared (declared or predicted)" in result.stdout
    listed = json.loads(jitney("list", "--json").stdout)
    assert {"orca", "fcfs"} <= {policy["name"] for policy in listed["policies"]}
    assert listed["broken"] == []


def test_list_names_the_broken_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "unsound", {"unsound": "unsound_module:Absent"})
    result = jitney("list")
    assert result.exit_code == 0
    assert "unsound is left out (unsound 1.0: unsound_module:Absent): policy 'unsound'" in result.stderr
    assert "\norca\n" in result.stdout
    assert [policy["name"] for policy in json.loads(jitney("list", "--json").stdout)["broken"]] == ["unsound"]


def test_show_tells_all_of_one() -> None:
    result = jitney("show", "orca")
    assert result.exit_code == 0
    for words in ("Algorithm 1 of Orca", "hooks: reserve_blocks, plan_iteration", "option: max_batch=32", "Guarantees"):
        assert words in result.stdout
    assert json.loads(jitney("show", "orca", "--json").stdout)["hookspec_range"] == [1, 1]


def test_show_of_nobody_fails() -> None:
    result = jitney("show", "nobody")
    assert result.exit_code == 1
    assert "there is no policy 'nobody'" in result.stderr


def test_check_of_a_sound_policy_passes(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    result = jitney("check", "orca:max_batch=2", "--workloads", "3", "--no-cost", "--keep", str(kept))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("orca:max_batch=2: passed")
    assert not kept.exists()


def test_check_of_a_bad_one_fails_and_keeps_a_case_that_can_be_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    result = jitney("check", RAISES, "--workloads", "5", "--no-cost", "--keep", str(kept))
    assert result.exit_code == 1, result.output
    assert "FAIL workloads: policy raises: rank_sequences raised KeyError" in result.stdout
    assert f"--replay {kept}" in result.stdout
    assert json.loads(kept.read_text())["finding"]["kind"] == "fault"
    again = jitney("check", RAISES, "--replay", str(kept))
    assert (again.exit_code, f"{RAISES}: fault: policy raises" in again.stdout) == (1, True)
    mended = jitney("check", "fcfs", "--replay", str(kept))
    assert (mended.exit_code, mended.stdout) == (0, f"fcfs: the counter-example against {RAISES} passes\n")


def test_check_prints_json(tmp_path: Path) -> None:
    options = ("--workloads", "5", "--no-cost", "--json", "--keep", str(tmp_path / "kept.json"))
    report = json.loads(jitney("check", RAISES, *options).stdout)
    assert [check["passed"] for check in report["checks"]] == [False]
    assert report["counter_example"]["policy"] == RAISES


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "there is no policy 'nobody'"),
        (("orca:max_batch=0",), "option max_batch=0 is wrong"),
        (("tests.testkit.bad:Nobody",), "no class 'Nobody'"),
        (("orca", "--workloads", "0"), "--workloads"),
        (("orca", "--replay", __file__), "holds no counter-example"),
    ],
)
def test_check_of_what_is_no_policy_is_a_usage_error(arguments: tuple[str, ...], words: str) -> None:
    result = jitney("check", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
