"""A real export, received by a collector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core_engine import Setback
from gateway.telemetry import Telemetry
from tests.telemetry.collector import Collector, attributes
from tests.telemetry.samples import MODEL, HandClock, iteration, outcome, ready

SERVER, INTERNAL = 2, 1
UNSET, ERROR = 0, 2
HANG_SECONDS = 60.0  # only a guard: an export to this machine takes no time


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    yield collector
    collector.stop()


@pytest.fixture
def exporting(collector: Collector, clock: HandClock) -> Telemetry:
    """Exports when shut down, which the tests do themselves."""
    telemetry = Telemetry(clock=clock)
    telemetry.start()
    telemetry.add_model(MODEL)
    telemetry.observe(MODEL, ready())
    return telemetry


def test_a_request_becomes_a_server_span_with_children(
    exporting: Telemetry, collector: Collector, clock: HandClock
) -> None:
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    request = exporting.request(
        "chat",
        MODEL,
        {"traceparent": f"00-{trace_id}-{parent_id}-01"},
        max_tokens=32,
        temperature=0.5,
        stream=True,
        stop=["END"],
        seed=None,
        n=1,
    )
    clock.advance(0.25)
    request.submitted()
    clock.advance(0.75)
    request.tokens(1)
    clock.advance(2.0)
    request.tokens(10)
    clock.advance(0.25)
    request.finish(outcome(), finish_reasons=["stop"], response_id="chatcmpl-1")
    exporting.shutdown(HANG_SECONDS)

    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {f"chat {MODEL}", "queue", "prefill", "decode"}
    server = spans[f"chat {MODEL}"]
    assert server.kind == SERVER
    assert server.trace_id.hex() == trace_id
    assert server.parent_span_id.hex() == parent_id
    assert server.status.code == UNSET
    assert attributes(server) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "jitney",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 32,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stream": True,
        "gen_ai.request.stop_sequences": ["END"],
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": 1.0,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.latency.time_in_queue": 0.5,
        "gen_ai.latency.time_to_first_token": 1.0,
        "gen_ai.latency.e2e": 3.25,
        "gen_ai.latency.time_in_model_prefill": 0.25,
        "gen_ai.latency.time_in_model_decode": 2.0,
        "gen_ai.latency.time_in_model_inference": 2.25,
        "jitney.num_preemptions": 1,
    }

    start = server.start_time_unix_nano
    assert server.end_time_unix_nano - start == 3_250_000_000
    times = {
        name: ((spans[name].start_time_unix_nano - start) / 1e9, (spans[name].end_time_unix_nano - start) / 1e9)
        for name in ("queue", "prefill", "decode")
    }
    assert times == {"queue": (0.25, 0.75), "prefill": (0.75, 1.0), "decode": (1.0, 3.0)}
    for name in times:
        assert spans[name].kind == INTERNAL
        assert spans[name].parent_span_id == server.span_id
        assert spans[name].trace_id == server.trace_id


def test_setbacks_are_events_of_the_phase_they_fall_into(exporting: Telemetry, collector: Collector) -> None:
    setbacks = (
        Setback(0.25, "held", "stretch: a newcomer costs too much", 0),
        Setback(1.0, "preempted", "memory", 0),
        Setback(1.5, "held", "kv_feedback: memory runs short", 0),
        Setback(9.0, "preempted", "rank", 0),
    )
    exporting.request("chat", MODEL, {}).finish(outcome(setbacks=setbacks))
    exporting.shutdown(HANG_SECONDS)
    events = {
        span.name: [(event.name, attributes(event)["jitney.cause"]) for event in span.events]
        for span in collector.spans()
    }
    assert events == {
        f"chat {MODEL}": [],
        "queue": [("held", "stretch: a newcomer costs too much")],
        "prefill": [],
        "decode": [("preempted", "memory"), ("held", "kv_feedback: memory runs short")],
    }
    for span in collector.spans():
        for event in span.events:
            assert span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano


def test_samples_of_one_request_are_told_apart_in_events(exporting: Telemetry, collector: Collector) -> None:
    setbacks = (Setback(1.0, "preempted", "memory", 0), Setback(1.25, "preempted", "memory", 2))
    exporting.request("chat", MODEL, {}, n=3).finish(outcome(setbacks=setbacks))
    exporting.shutdown(HANG_SECONDS)
    (decode,) = [span for span in collector.spans() if span.name == "decode"]
    assert [attributes(event)["jitney.sample_index"] for event in decode.events] == [0, 2]


def test_children_never_leave_their_parent(exporting: Telemetry, collector: Collector, clock: HandClock) -> None:
    request = exporting.request("chat", MODEL, {})
    clock.advance(2.5)
    request.submitted()
    clock.advance(0.5)
    request.finish(outcome())
    exporting.shutdown(HANG_SECONDS)
    (server,) = [span for span in collector.spans() if span.kind == SERVER]
    for span in collector.spans():
        assert server.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= server.end_time_unix_nano


def test_several_prompts_of_one_request_are_told_apart(exporting: Telemetry, collector: Collector) -> None:
    exporting.request("text_completion", MODEL, {}).finish(outcome(), outcome(), None)
    exporting.shutdown(HANG_SECONDS)
    prompts = [attributes(span)["jitney.prompt_index"] for span in collector.spans() if span.name == "queue"]
    assert sorted(prompts) == [0, 1]
    (server,) = [span for span in collector.spans() if span.kind == SERVER]
    assert attributes(server)["gen_ai.usage.output_tokens"] == 22


def test_errors_name_their_type_and_whose_fault_it_was(exporting: Telemetry, collector: Collector) -> None:
    exporting.request("chat", MODEL, {}).error("engine_died")
    exporting.request("chat", "no-such-model", {}).error("model_not_found", client_at_fault=True)
    exporting.shutdown(HANG_SECONDS)
    ours, theirs = collector.spans()
    assert (ours.name, ours.status.code, attributes(ours)["error.type"]) == (f"chat {MODEL}", ERROR, "engine_died")
    assert (theirs.name, theirs.status.code, attributes(theirs)["error.type"]) == ("chat", UNSET, "model_not_found")


def test_metrics_go_out_under_their_names(exporting: Telemetry, collector: Collector, clock: HandClock) -> None:
    exporting.observe(MODEL, iteration(num_outputs=2, decode_tokens=2, duration_seconds=0.02, sequences_running=2))
    request = exporting.request("chat", MODEL, {})
    request.tokens(1)
    clock.advance(0.5)
    request.tokens(2)
    request.finish(outcome())
    exporting.shutdown(HANG_SECONDS)

    metrics = collector.last_metrics()
    (running,) = metrics["vllm:num_requests_running"].gauge.data_points
    assert running.as_double == 2 or running.as_int == 2
    assert attributes(running) == {"model_name": MODEL}
    assert metrics["vllm:generation_tokens"].sum.is_monotonic
    (duration,) = metrics["gen_ai.server.request.duration"].histogram.data_points
    assert metrics["gen_ai.server.request.duration"].unit == "s"
    assert attributes(duration) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "jitney",
        "gen_ai.request.model": MODEL,
    }
    (between,) = metrics["vllm:inter_token_latency_seconds"].histogram.data_points
    assert (between.count, between.sum, between.min, between.max) == (2, 0.5, 0.25, 0.25)
    assert sum(between.bucket_counts) == 2
    assert len(between.bucket_counts) == len(between.explicit_bounds) + 1


def test_the_resource_is_ours_unless_the_operator_says_otherwise(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    for expected in ("jitney", "chat-eu"):
        telemetry = Telemetry()
        telemetry.start()
        telemetry.add_model(MODEL)
        telemetry.request("chat", MODEL, {}).finish(outcome())
        telemetry.shutdown(HANG_SECONDS)
        *_, resource = collector.resources()
        assert resource["service.name"] == expected
        assert resource["service.version"]
        monkeypatch.setenv("OTEL_SERVICE_NAME", "chat-eu")


def test_a_collector_that_never_answers_holds_nobody_up(exporting: Telemetry, collector: Collector) -> None:
    collector.answering.clear()
    exporting.request("chat", MODEL, {}).finish(outcome())
    exporting.shutdown(timeout_seconds=0.01)
    assert not collector.traces
    collector.answering.set()
    collector.wait_for_all(HANG_SECONDS)  # or exporters go on trying, in threads, while other tests run
