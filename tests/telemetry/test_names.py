from __future__ import annotations

import pytest

from core_engine import IterationOutput, PolicyEvent, Rejected
from gateway.telemetry import Telemetry
from gateway.telemetry.names import METRICS
from tests.telemetry.samples import MODEL, HandClock, iteration, outcome, prometheus_name, ready, samples


def exercise(telemetry: Telemetry, clock: HandClock) -> None:
    """Make every metric have a value."""
    telemetry.observe(MODEL, ready())
    telemetry.observe(
        MODEL,
        iteration(
            num_outputs=1,
            finished=(outcome(),),
            prefill_tokens=1,
            idle_gap_seconds=0.1,
            memory_shortages={"take": 1},
            rescues={"anchor": 1},
            policy_faults={"orca": 1},
            decision_seconds={"plan_iteration/orca": 0.1},
            starts=1,
            held={"stretch: a newcomer costs too much": 1},
            longest_wait_iterations={"standard": 1},
            served_tokens={"anonymous": 1},
            attainment={"standard": (1, 1)},
        ),
    )
    event = PolicyEvent(kind="adopted", version=2, iteration=1, policies=("orca",))
    telemetry.observe(MODEL, IterationOutput(epoch=1, policy_version=2, policy_events=[event]))
    telemetry.observe(MODEL, IterationOutput(epoch=1, policy_version=1, rejected=[Rejected("r1", "queue_full", "no")]))
    request = telemetry.request("chat", MODEL, {})
    request.tokens(1)
    request.tokens(1)
    request.finish(outcome())


def test_the_exposition_has_every_name_and_no_other(telemetry: Telemetry, clock: HandClock) -> None:
    exercise(telemetry, clock)
    expected = set()
    for metric in METRICS.values():
        for stream in metric.streams:
            name = prometheus_name(metric, stream)
            endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
            expected |= {name + ending for ending in endings}
    assert set(samples(telemetry)) == expected


def test_labels_are_the_declared_ones(telemetry: Telemetry, clock: HandClock) -> None:
    exercise(telemetry, clock)
    found = samples(telemetry)
    for metric in METRICS.values():
        for stream in metric.streams:
            name = prometheus_name(metric, stream) + ("_count" if metric.kind == "histogram" else "")
            declared = {label.replace(".", "_") for label in stream.attributes}
            for labels, _ in found[name]:
                assert set(labels) <= declared, name


@pytest.mark.parametrize("key", sorted(METRICS))
def test_a_metric_is_described(key: str) -> None:
    metric = METRICS[key]
    assert metric.description
    assert all(stream.buckets for stream in metric.streams) == (metric.kind == "histogram")
    assert all(list(stream.buckets) == sorted(set(stream.buckets)) for stream in metric.streams)
