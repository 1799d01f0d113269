from __future__ import annotations

import pytest

from core_engine import EngineFailed, IterationOutput, ModelPrepared, PolicyEvent, Rejected
from gateway.telemetry import Telemetry
from gateway.telemetry.engine import LABEL_SETS
from tests.telemetry.samples import MODEL, iteration, outcome, ready, samples, value


def test_gauges_tell_the_last_iteration(telemetry: Telemetry) -> None:
    telemetry.observe(MODEL, ready())
    telemetry.observe(
        MODEL,
        iteration(sequences_running=3, sequences_waiting=2, waiting_tokens=70, blocks_free=60, blocks_cached_idle=20),
    )
    assert value(telemetry, "vllm:num_requests_running", model_name=MODEL) == 3
    assert value(telemetry, "vllm:num_requests_waiting", model_name=MODEL) == 2
    assert value(telemetry, "jitney_waiting_tokens") == 70
    assert value(telemetry, "vllm:kv_cache_usage_perc") == pytest.approx(0.4)
    assert value(telemetry, "jitney_kv_cached_idle_perc") == pytest.approx(0.2)


def test_gauges_exist_before_the_engine_has_spoken(telemetry: Telemetry) -> None:
    assert value(telemetry, "vllm:num_requests_running") == 0
    assert value(telemetry, "vllm:num_requests_waiting") == 0
    assert value(telemetry, "vllm:kv_cache_usage_perc") == 0


def test_gauges_return_to_zero_when_the_engine_is_idle(telemetry: Telemetry) -> None:
    telemetry.observe(MODEL, iteration(sequences_running=3, blocks_free=10))
    telemetry.observe(MODEL, iteration())
    assert value(telemetry, "vllm:num_requests_running") == 0
    assert value(telemetry, "vllm:kv_cache_usage_perc") == 0


@pytest.mark.parametrize("state", ["starting", "restarting", "failed", "stopped"])
def test_gauges_are_zero_while_no_engine_serves(state: str) -> None:
    states = ["ready"]
    telemetry = Telemetry()
    telemetry.start()
    telemetry.add_model(MODEL, engine_state=lambda: states[-1])
    telemetry.observe(MODEL, iteration(sequences_running=3, sequences_waiting=1, blocks_free=10))
    assert value(telemetry, "jitney_engine_ready") == 1
    states.append(state)
    assert value(telemetry, "jitney_engine_ready") == 0
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert value(telemetry, name) == 0
    telemetry.shutdown()


def test_a_new_epoch_is_a_restart_that_resets_gauges_and_keeps_counters(telemetry: Telemetry) -> None:
    telemetry.observe(MODEL, ready(epoch=1))
    telemetry.observe(MODEL, iteration(epoch=1, num_outputs=4, sequences_running=3, preemptions=2, blocks_free=10))
    assert value(telemetry, "jitney_engine_restarts_total") == 0
    telemetry.observe(MODEL, ModelPrepared(epoch=2, directory="somewhere"))
    assert value(telemetry, "vllm:num_requests_running") == 0
    assert value(telemetry, "vllm:kv_cache_usage_perc") == 0
    telemetry.observe(MODEL, ready(epoch=2))
    telemetry.observe(MODEL, iteration(epoch=2, num_outputs=1, preemptions=1))
    telemetry.observe(MODEL, EngineFailed(epoch=3, message="no memory"))
    assert value(telemetry, "jitney_engine_restarts_total") == 2
    assert value(telemetry, "vllm:num_preemptions_total") == 3
    assert value(telemetry, "vllm:generation_tokens_total") == 5


def test_counters_add_up_increments(telemetry: Telemetry) -> None:
    for _ in range(2):
        telemetry.observe(
            MODEL,
            iteration(
                num_outputs=3,
                prefill_tokens=20,
                decode_tokens=3,
                idle_rows=5,
                memory_shortages={"next_block": 2, "take": 1},
                rescues={"gates": 1, "overdue": 3},
                policy_faults={"orca": 1},
                decision_seconds={"plan_iteration/orca": 0.5, "rank_sequences/fcfs": 0.25},
            ),
        )
    assert value(telemetry, "vllm:prompt_tokens_total") == 40
    assert value(telemetry, "vllm:generation_tokens_total") == 6
    assert value(telemetry, "jitney_idle_rows_total") == 10
    assert value(telemetry, "jitney_memory_shortages_total", cause="next_block") == 4
    assert value(telemetry, "jitney_memory_shortages_total", cause="take") == 2
    assert value(telemetry, "jitney_rescues_total", rule="overdue") == 6
    assert value(telemetry, "jitney_policy_faults_total", policy="orca") == 2
    assert value(telemetry, "jitney_decision_seconds_total", hook="plan_iteration", policy="orca") == 1.0
    assert value(telemetry, "jitney_decision_seconds_total", hook="rank_sequences", policy="fcfs") == 0.5


def test_scheduling_is_counted_by_who_held_whom_and_who_was_served(telemetry: Telemetry) -> None:
    telemetry.observe(MODEL, ready())
    for _ in range(2):
        telemetry.observe(
            MODEL,
            iteration(
                starts=3,
                held={"stretch: a newcomer costs too much": 4, "engine: an overdue request is next": 1},
                longest_wait_iterations={"batch": 70, "standard": 2},
                served_tokens={"acme": 30, "other": 10},
                attainment={"standard": (1, 2)},
            ),
        )
    assert value(telemetry, "jitney_starts_total") == 6
    assert value(telemetry, "jitney_holds_total", policy="stretch", reason="a newcomer costs too much") == 8
    assert value(telemetry, "jitney_holds_total", policy="engine") == 2
    assert value(telemetry, "jitney_longest_wait_iterations", **{"class": "batch"}) == 70
    assert value(telemetry, "jitney_served_tokens_total", tenant="acme") == 60
    assert value(telemetry, "jitney_tenant_jain_index") == pytest.approx(80**2 / (2 * (60**2 + 20**2)))
    assert value(telemetry, "jitney_objectives_met_total", **{"class": "standard"}) == 2
    assert value(telemetry, "jitney_objectives_judged_total", **{"class": "standard"}) == 4


def test_changes_of_policies_are_counted_by_kind(telemetry: Telemetry) -> None:
    events = [
        PolicyEvent(kind=kind, version=version, iteration=version, policies=("orca",))
        for version, kind in enumerate(("adopted", "adopted", "rolled_back"), start=2)
    ]
    telemetry.observe(MODEL, IterationOutput(epoch=1, policy_version=4, policy_events=events))
    assert value(telemetry, "jitney_policy_events_total", kind="adopted") == 2
    assert value(telemetry, "jitney_policy_events_total", kind="rolled_back") == 1


def test_iterations_are_measured_when_they_execute_something(telemetry: Telemetry) -> None:
    telemetry.observe(
        MODEL,
        iteration(
            duration_seconds=0.03,
            idle_gap_seconds=0.0002,
            prefill_tokens=12,
            decode_tokens=4,
            prefill_time_share=0.5,
            prefill_compute_share=0.75,
        ),
    )
    telemetry.observe(MODEL, iteration())
    for name, total in (
        ("vllm:iteration_tokens_total", 16),
        ("jitney_iteration_duration_seconds", 0.03),
        ("jitney_iteration_idle_gap_seconds", 0.0002),
        ("jitney_prompt_time_share", 0.5),
        ("jitney_prompt_compute_share", 0.75),
    ):
        assert value(telemetry, f"{name}_count") == 1, name
        assert value(telemetry, f"{name}_sum") == pytest.approx(total), name
    assert value(telemetry, "jitney_iteration_duration_seconds_bucket", le="0.025") == 0
    assert value(telemetry, "jitney_iteration_duration_seconds_bucket", le="0.05") == 1


def test_finished_requests_count_by_reason_with_their_times(telemetry: Telemetry) -> None:
    assert value(telemetry, "vllm:request_success_total", finished_reason="stop") == 0
    never_ran = outcome(finish_reason="cancelled", queue_seconds=None, prefill_seconds=None, decode_seconds=None)
    telemetry.observe(MODEL, iteration(finished=(outcome(), outcome(finish_reason="length"), never_ran)))
    telemetry.observe(MODEL, iteration(finished=(outcome(finish_reason="error"),)))
    reasons = {labels["finished_reason"]: count for labels, count in samples(telemetry)["vllm:request_success_total"]}
    assert reasons == {"stop": 1, "length": 1, "abort": 1}
    assert value(telemetry, "vllm:prefix_cache_queries_total") == 3 * 5
    assert value(telemetry, "vllm:prefix_cache_hits_total") == 3 * 2
    for name, seconds in (("queue", 0.5), ("prefill", 0.25), ("decode", 2.0)):
        assert value(telemetry, f"vllm:request_{name}_time_seconds_count") == 3
        assert value(telemetry, f"vllm:request_{name}_time_seconds_sum") == pytest.approx(3 * seconds)


def test_labels_that_policies_make_up_are_bounded(telemetry: Telemetry) -> None:
    made_up = [Rejected(f"r{index}", f"reason-{index}", "no") for index in range(3 * LABEL_SETS)]
    telemetry.observe(MODEL, IterationOutput(epoch=1, policy_version=1, rejected=made_up))
    rejected = samples(telemetry)["jitney_requests_rejected_total"]
    assert len(rejected) == LABEL_SETS + 1
    assert sum(count for _, count in rejected) == len(made_up)


def test_layout_and_policies_are_information(telemetry: Telemetry) -> None:
    assert "vllm:cache_config_info" not in samples(telemetry)
    telemetry.observe(MODEL, ready())
    assert value(telemetry, "vllm:cache_config_info", block_size="32", num_gpu_blocks="100") == 1
    assert value(telemetry, "jitney_policy_info", hook="plan_iteration", policy="stall_free") == 1


def test_each_model_has_its_own_numbers_under_its_own_label(telemetry: Telemetry) -> None:
    telemetry.add_model("other-model", ["other"])
    telemetry.observe(MODEL, iteration(num_outputs=3, sequences_running=1, prefill_tokens=4))
    telemetry.observe("other-model", iteration(num_outputs=5, sequences_running=2, prefill_tokens=6))
    for name, counted in (
        ("vllm:generation_tokens_total", (3, 5)),
        ("vllm:num_requests_running", (1, 2)),
        ("vllm:iteration_tokens_total_sum", (4, 6)),
    ):
        assert (value(telemetry, name, model_name=MODEL), value(telemetry, name, model_name="other-model")) == counted
    for model in (MODEL, "other"):
        request = telemetry.request("chat", model, {})
        request.tokens(1)
        request.tokens(1)
        request.finish(outcome())
    assert value(telemetry, "vllm:e2e_request_latency_seconds_count", model_name="other-model") == 1
    assert value(telemetry, "vllm:inter_token_latency_seconds_count", model_name="other-model") == 1


def test_a_model_that_is_gone_has_no_gauges(telemetry: Telemetry) -> None:
    telemetry.add_model("other-model")
    telemetry.remove_model("other-model")
    telemetry.observe("other-model", iteration(sequences_running=2))
    models = {labels["model_name"] for labels, _ in samples(telemetry)["vllm:num_requests_running"]}
    assert models == {MODEL}
