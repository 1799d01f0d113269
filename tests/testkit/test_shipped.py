"""Every policy that comes with Jitney passes the conformance kit."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from core_engine.testkit import check_policy

NAMES = sorted(importlib.metadata.distribution("jitney").entry_points.select(group="jitney.policies").names)
OPTIONS = {"record": "path={directory}/record.jsonl,max_lines=64"}
OTHER_OPTIONS = [
    "orca:max_batch=2,output=predicted",
    "paged:headroom=0",
    "static_batch:batch_size=3,keep_finished_rows=true,pad=true,reserve=max",
]


def spec(name: str, directory: Path) -> str:
    return f"{name}:{OPTIONS[name].format(directory=directory)}" if name in OPTIONS else name


@pytest.mark.parametrize("policy", NAMES)
def test_it_stands_random_workloads_and_floods(policy: str, tmp_path: Path) -> None:
    report = check_policy(spec(policy, tmp_path), num_workloads=20, cost=False, processes=False)
    assert report.passed, str(report)


@pytest.mark.full
@pytest.mark.parametrize("policy", [*NAMES, *OTHER_OPTIONS])
def test_it_stands_the_whole_kit(policy: str, tmp_path: Path) -> None:
    report = check_policy(spec(policy, tmp_path), seed=1000)
    assert report.passed, str(report)
