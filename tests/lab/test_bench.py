from __future__ import annotations

import msgspec

from core_engine.lab.bench import Scenario, render_scheduler_bench, run_scheduler_bench

SCENARIOS = (
    Scenario("decode", 4, 0, limit_seconds=1e9),
    Scenario("decode", 4, 7),
    Scenario("mixed", 4, 7, limit_seconds=0.0),
)


def test_every_scenario_is_measured_and_judged() -> None:
    report = msgspec.json.decode(msgspec.json.encode(run_scheduler_bench(20, SCENARIOS)))
    rows = report["scenarios"]
    assert [(row["kind"], row["running"], row["waiting"]) for row in rows] == [
        ("decode", 4, 0),
        ("decode", 4, 7),
        ("mixed", 4, 7),
    ]
    assert [row["met"] for row in rows] == [True, None, False]
    assert all(0 < row["median_seconds"] <= row["p90_seconds"] for row in rows)
    assert all("plan_iteration/stall_free" in row["mean_decision_seconds"] for row in rows)


def test_the_table_has_a_line_for_each() -> None:
    lines = render_scheduler_bench(run_scheduler_bench(5, SCENARIOS)).splitlines()
    assert len(lines) == 2 + len(SCENARIOS)
    assert lines[2].split()[-2:] == ["met", "defaults"]
    assert lines[4].split()[-2:] == ["missed", "defaults"]
