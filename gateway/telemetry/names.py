"""Every name that Jitney emits: metrics with their aliases, span attributes.

The GenAI semantic conventions of OpenTelemetry still move, so they are spelled here and nowhere else.
The `vllm:` names are those that dashboards and autoscalers read by now, whatever the engine;
`jitney_` names are for what no convention has a word for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PROVIDER = "jitney"

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
USAGE_CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
ERROR_TYPE = "error.type"

LATENCY_QUEUE = "gen_ai.latency.time_in_queue"
LATENCY_FIRST_TOKEN = "gen_ai.latency.time_to_first_token"  # noqa: S105 - no password
LATENCY_E2E = "gen_ai.latency.e2e"
LATENCY_PREFILL = "gen_ai.latency.time_in_model_prefill"
LATENCY_DECODE = "gen_ai.latency.time_in_model_decode"
LATENCY_INFERENCE = "gen_ai.latency.time_in_model_inference"

NUM_PREEMPTIONS = "jitney.num_preemptions"
PROMPT_INDEX = "jitney.prompt_index"
SAMPLE_INDEX = "jitney.sample_index"
SETBACK_CAUSE = "jitney.cause"

# What RequestAttributes (gateway/telemetry/request.py) calls them.
REQUEST_ATTRIBUTES = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "stream": "gen_ai.request.stream",
    "stop": "gen_ai.request.stop_sequences",
    "n": "gen_ai.request.choice.count",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "conversation_id": "gen_ai.conversation.id",
    "output_type": "gen_ai.output.type",
}

MODEL_LABEL = "model_name"
FINISHED_REASON_LABEL = "finished_reason"

_BY_MODEL = frozenset({MODEL_LABEL})
_GENAI = frozenset({OPERATION_NAME, PROVIDER_NAME, REQUEST_MODEL, ERROR_TYPE})

# Buckets in seconds: of the GenAI conventions, and of the `vllm:` histograms.
_PER_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_LONG_PER_TOKEN_BUCKETS = (*_PER_TOKEN_BUCKETS, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_FIRST_TOKEN_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_LONG_FIRST_TOKEN_BUCKETS = (*_FIRST_TOKEN_BUCKETS, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_GENAI_DURATION_BUCKETS = tuple(0.01 * 2**power for power in range(14))
_REQUEST_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_ITERATION_BUCKETS = (0.001, 0.0025, 0.005, *_PER_TOKEN_BUCKETS, 5.0, 10.0)
_GAP_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_TOKEN_BUCKETS = (1.0, *(float(2**power) for power in range(3, 15)))
_SHARE_BUCKETS = tuple(tenth / 10 for tenth in range(11))


@dataclass(frozen=True, slots=True)
class Stream:
    """One exported name of a metric; `attributes` are the labels it keeps, `buckets` those of a histogram."""

    name: str
    attributes: frozenset[str] = _BY_MODEL
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity: measured once, exported as every one of its streams. `unit` is a UCUM code."""

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    streams: tuple[Stream, ...]


def _gauge(unit: str, description: str, name: str, *labels: str) -> Metric:
    return Metric("gauge", unit, description, (Stream(name, _BY_MODEL.union(labels)),))


def _counter(unit: str, description: str, name: str, *labels: str) -> Metric:
    return Metric("counter", unit, description, (Stream(name, _BY_MODEL.union(labels)),))


def _histogram(unit: str, description: str, *streams: Stream) -> Metric:
    return Metric("histogram", unit, description, streams)


# By a short key of ours, from which the instrument's own name is made: OpenTelemetry refuses ":" there.
METRICS: dict[str, Metric] = {
    # What the engine is doing now.
    "running": _gauge("{request}", "Sequences that run", "vllm:num_requests_running"),
    "waiting": _gauge("{request}", "Sequences that wait to run", "vllm:num_requests_waiting"),
    "kv_usage": _gauge("1", "Share of the KV blocks that running sequences own", "vllm:kv_cache_usage_perc"),
    "cache_config": _gauge(
        "1", "Layout of the KV cache; the value is always 1", "vllm:cache_config_info",
        "block_size", "num_gpu_blocks", "cache_dtype", "kv_bytes_per_token",
    ),
    "kv_cached_idle": _gauge("1", "Share of the KV blocks that are free but cached", "jitney_kv_cached_idle_perc"),
    "kv_waste": _gauge("{token}", "Slots in owned KV blocks that hold no token", "jitney_kv_waste_tokens"),
    "waiting_tokens": _gauge("{token}", "Known tokens of the sequences that wait", "jitney_waiting_tokens"),
    "cost_model_error": _gauge("1", "Mean relative error of predicted iteration times", "jitney_cost_model_error"),
    "policy_version": _gauge("1", "Version of the set of policies in force", "jitney_policy_version"),
    "policies": _gauge("1", "Who answers which hook; the value is always 1", "jitney_policy_info", "hook", "policy"),
    "longest_wait": _gauge(
        "{iteration}", "Iterations that the first of the class's queues have waited", "jitney_longest_wait_iterations",
        "class",
    ),
    "jain": _gauge("1", "Jain's index of the tokens served to each tenant; 1 is equal", "jitney_tenant_jain_index"),
    "batch_lines_running": _gauge("{line}", "Lines of batches that have a seat", "jitney_batch_lines_running"),
    "batch_lines_waiting": _gauge("{line}", "Lines of batches that wait for a seat", "jitney_batch_lines_waiting"),
    "ready": _gauge("1", "1 while the engine takes requests, else 0", "jitney_engine_ready"),
    # What it has done.
    "starts": _counter("{sequence}", "Sequences that boarded", "jitney_starts"),
    "holds": _counter(
        "{sequence}", "Times a sequence was held back in an iteration", "jitney_holds", "policy", "reason"
    ),
    "served": _counter("{token}", "Tokens computed for the first time", "jitney_served_tokens", "tenant"),
    "objectives_met": _counter(
        "{request}", "Finished requests that met the objective of their class", "jitney_objectives_met", "class"
    ),
    "objectives_judged": _counter(
        "{request}", "Finished requests of classes with an objective", "jitney_objectives_judged", "class"
    ),
    "policy_events": _counter(
        "{event}", "Sets of policies adopted, confirmed, rolled back, and policies retired", "jitney_policy_events",
        "kind",
    ),
    "prompt_tokens": _counter("{token}", "Prompt tokens computed, recomputed ones too", "vllm:prompt_tokens"),
    "generation_tokens": _counter("{token}", "Tokens generated", "vllm:generation_tokens"),
    "prefix_queries": _counter(
        "{token}", "Prompt tokens of requests that ran", "vllm:prefix_cache_queries"
    ),
    "prefix_hits": _counter(
        "{token}", "Prompt tokens of requests that ran, found in cached blocks", "vllm:prefix_cache_hits"
    ),
    "preemptions": _counter("{preemption}", "Times a running sequence gave its blocks back", "vllm:num_preemptions"),
    "success": _counter(
        "{request}", "Requests that ended without an error", "vllm:request_success", FINISHED_REASON_LABEL
    ),
    "rejections": _counter("{request}", "Requests refused on arrival", "jitney_requests_rejected", "reason"),
    "shortages": _counter("{shortage}", "Times KV blocks were asked for in vain", "jitney_memory_shortages", "cause"),
    "rescues": _counter(
        "{rescue}", "Times a rule of the engine's own stepped in, so that a request made progress", "jitney_rescues",
        "rule",
    ),
    "idle_rows": _counter("{row}", "Rows executed for nothing", "jitney_idle_rows"),
    "policy_faults": _counter("{fault}", "Answers of a policy that were refused", "jitney_policy_faults", "policy"),
    "decisions": _counter("s", "Time that policies took to answer", "jitney_decision_seconds", "hook", "policy"),
    "restarts": _counter("{restart}", "Times the engine was started again", "jitney_engine_restarts"),
    # Each iteration.
    "iteration_tokens": _histogram(
        "{token}", "Tokens computed in an iteration", Stream("vllm:iteration_tokens_total", buckets=_TOKEN_BUCKETS)
    ),
    "iteration_duration": _histogram(
        "s", "Execution of an iteration", Stream("jitney_iteration_duration_seconds", buckets=_ITERATION_BUCKETS)
    ),
    "idle_gap": _histogram(
        "s",
        "From the end of an execution to the start of the next, while there was work",
        Stream("jitney_iteration_idle_gap_seconds", buckets=_GAP_BUCKETS),
    ),
    "prompt_time_share": _histogram(
        "1",
        "Share of prompts in an iteration's time, estimated by the cost model",
        Stream("jitney_prompt_time_share", buckets=_SHARE_BUCKETS),
    ),
    "prompt_compute_share": _histogram(
        "1",
        "Share of prompts in an iteration's computation, exact",
        Stream("jitney_prompt_compute_share", buckets=_SHARE_BUCKETS),
    ),
    # Each request.
    "request_duration": _histogram(
        "s",
        "From receiving a request to its end, failures too",
        Stream("gen_ai.server.request.duration", _GENAI, _GENAI_DURATION_BUCKETS),
    ),
    "e2e": _histogram(
        "s",
        "From receiving a request to the end of its answer",
        Stream("vllm:e2e_request_latency_seconds", buckets=_REQUEST_BUCKETS),
    ),
    "time_to_first_token": _histogram(
        "s",
        "From receiving a request to its first token",
        Stream("gen_ai.server.time_to_first_token", _GENAI, _FIRST_TOKEN_BUCKETS),
        Stream("vllm:time_to_first_token_seconds", buckets=_LONG_FIRST_TOKEN_BUCKETS),
    ),
    "time_per_output_token": _histogram(
        "s",
        "Mean time per token of a request after its first",
        Stream("gen_ai.server.time_per_output_token", _GENAI, _PER_TOKEN_BUCKETS),
        Stream("vllm:request_time_per_output_token_seconds", buckets=_LONG_PER_TOKEN_BUCKETS),
    ),
    "inter_token_latency": _histogram(
        "s",
        "Time between two tokens of a request",
        Stream("vllm:inter_token_latency_seconds", buckets=_LONG_PER_TOKEN_BUCKETS),
    ),
    "queue_time": _histogram(
        "s",
        "From arrival at the engine to boarding",
        Stream("vllm:request_queue_time_seconds", buckets=_REQUEST_BUCKETS),
    ),
    "prefill_time": _histogram(
        "s", "From boarding to the first token", Stream("vllm:request_prefill_time_seconds", buckets=_REQUEST_BUCKETS)
    ),
    "decode_time": _histogram(
        "s", "From the first token to the last", Stream("vllm:request_decode_time_seconds", buckets=_REQUEST_BUCKETS)
    ),
}  # fmt: skip


def instrument_name(key: str) -> str:
    """The name of the instrument behind METRICS[key], unseen outside."""
    return f"jitney.{key}"
