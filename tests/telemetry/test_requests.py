from __future__ import annotations

import pytest

from gateway.telemetry import Telemetry
from tests.telemetry.samples import MODEL, HandClock, outcome, ready, samples, value


def test_latencies_of_a_stream(telemetry: Telemetry, clock: HandClock) -> None:
    request = telemetry.request("chat", MODEL, {})
    clock.advance(0.25)
    request.submitted()
    clock.advance(0.25)
    request.tokens(1)
    clock.advance(0.5)
    request.tokens(1)
    clock.advance(1.0)
    request.tokens(4)
    clock.advance(1.0)
    request.finish(outcome(), finish_reasons=["stop"])

    genai = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "jitney", "gen_ai_request_model": MODEL}
    for name, total in (
        ("gen_ai_server_request_duration_seconds", 3.0),
        ("gen_ai_server_time_to_first_token_seconds", 0.5),
        ("gen_ai_server_time_per_output_token_seconds", 0.2),
    ):
        assert value(telemetry, f"{name}_sum", **genai) == pytest.approx(total)
        assert value(telemetry, f"{name}_count", **genai) == 1
    for name, count, total in (
        ("vllm:e2e_request_latency_seconds", 1, 3.0),
        ("vllm:time_to_first_token_seconds", 1, 0.5),
        ("vllm:request_time_per_output_token_seconds", 1, 0.2),
        ("vllm:inter_token_latency_seconds", 5, 1.5),
    ):
        assert value(telemetry, f"{name}_count", model_name=MODEL) == count, name
        assert value(telemetry, f"{name}_sum", model_name=MODEL) == pytest.approx(total), name
    assert value(telemetry, "vllm:inter_token_latency_seconds_bucket", le="0.3") == 4
    assert value(telemetry, "vllm:inter_token_latency_seconds_bucket", le="0.5") == 5


def test_buckets_are_those_of_the_conventions(telemetry: Telemetry, clock: HandClock) -> None:
    telemetry.request("chat", MODEL, {}).finish(outcome())
    bounds = [labels["le"] for labels, _ in samples(telemetry)["gen_ai_server_time_per_output_token_seconds_bucket"]]
    assert [float(bound) for bound in bounds[:-1]] == [
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    ]  # fmt: skip
    assert bounds[-1] == "+Inf"


def test_choices_that_run_side_by_side_share_the_time(telemetry: Telemetry, clock: HandClock) -> None:
    request = telemetry.request("chat", MODEL, {}, n=4)
    request.tokens(4)
    clock.advance(0.5)
    request.tokens(4)
    assert value(telemetry, "vllm:inter_token_latency_seconds_count") == 4
    assert value(telemetry, "vllm:inter_token_latency_seconds_sum") == pytest.approx(4 * 0.5)


def test_prompts_of_one_request_are_measured_apart(telemetry: Telemetry, clock: HandClock) -> None:
    request = telemetry.request("text_completion", MODEL, {})
    for _ in range(3):
        request.tokens(1, prompt_index=0)
        request.tokens(1, prompt_index=1)
        clock.advance(0.5)
    assert value(telemetry, "vllm:time_to_first_token_seconds_count") == 1
    assert value(telemetry, "vllm:inter_token_latency_seconds_count") == 4
    assert value(telemetry, "vllm:inter_token_latency_seconds_bucket", le="0.4") == 0
    assert value(telemetry, "vllm:inter_token_latency_seconds_bucket", le="0.5") == 4


def test_an_end_without_tokens_is_no_first_token(telemetry: Telemetry) -> None:
    request = telemetry.request("chat", MODEL, {})
    request.tokens(0)
    assert "vllm:time_to_first_token_seconds_count" not in samples(telemetry)


def test_an_error_ends_the_request_once(telemetry: Telemetry, clock: HandClock) -> None:
    request = telemetry.request("chat", MODEL, {})
    request.error("engine_died")
    request.error("engine_died")
    request.finish(outcome())
    request.tokens(3)
    assert value(telemetry, "gen_ai_server_request_duration_seconds_count", error_type="engine_died") == 1
    assert "vllm:e2e_request_latency_seconds_count" not in samples(telemetry)
    assert "vllm:time_to_first_token_seconds_count" not in samples(telemetry)


def test_a_client_that_leaves_early_has_no_outcome(telemetry: Telemetry) -> None:
    telemetry.request("chat", MODEL, {}).finish(None, finish_reasons=["cancelled"])
    assert value(telemetry, "vllm:e2e_request_latency_seconds_count") == 1
    assert "vllm:request_time_per_output_token_seconds_count" not in samples(telemetry)


def test_names_that_clients_make_up_never_become_labels(telemetry: Telemetry) -> None:
    telemetry.observe(MODEL, ready())
    telemetry.request("chat", "made-up", {}).error("model_not_found", client_at_fault=True)
    before = telemetry.metrics_text()[0].count(b"\n")
    for number in range(50):
        request = telemetry.request("chat", f"made-up-{number}", {}, stop=[f"secret-{number}"])
        request.error("model_not_found", client_at_fault=True)
    text = telemetry.metrics_text()[0]
    assert text.count(b"\n") == before
    assert b"made-up" not in text
    assert b"secret" not in text


def test_error_types_are_bounded(telemetry: Telemetry) -> None:
    for number in range(500):
        telemetry.request("chat", MODEL, {}).error(f"type-{number}")
    counts = samples(telemetry)["gen_ai_server_request_duration_seconds_count"]
    assert len(counts) < 100
    assert sum(count for _, count in counts) == 500
