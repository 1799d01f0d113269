"""Messages of an engine, a clock to move by hand, and reading /metrics back."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from core_engine import EngineInfo, EngineReady, IterationOutput, IterationStats, Outcome, SequenceOutput
from gateway.telemetry import Telemetry
from gateway.telemetry.names import Metric, Stream

MODEL = "tiny-model"


class HandClock:
    """Seconds that move only when told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def ready(epoch: int = 1, **changes: Any) -> EngineReady:
    known: dict[str, Any] = {
        "model": MODEL,
        "architecture": "LlamaForCausalLM",
        "dtype": "float32",
        "device": "cpu",
        "vocab_size": 256,
        "max_model_len": 512,
        "block_size": 32,
        "num_blocks": 100,
        "kv_bytes_per_token": 64,
        "eos_token_ids": (2,),
        "policies": {"plan_iteration": ["stall_free"]},
    }
    return EngineReady(epoch=epoch, info=EngineInfo(**{**known, **changes}))


def iteration(epoch: int = 1, *, num_outputs: int = 0, finished: tuple[Outcome, ...] = (), **stats: Any) -> Any:
    return IterationOutput(
        epoch=epoch,
        policy_version=1,
        outputs=[SequenceOutput(f"r{index}", 0, [7]) for index in range(num_outputs)],
        finished=list(finished),
        stats=IterationStats(iteration=1, blocks_total=100, **{"blocks_free": 100, **stats}),
    )


def outcome(**changes: Any) -> Outcome:
    known: dict[str, Any] = {
        "request_id": "r0",
        "finish_reason": "stop",
        "num_prompt_tokens": 5,
        "num_output_tokens": 11,
        "num_cached_tokens": 2,
        "num_preemptions": 1,
        "queue_seconds": 0.5,
        "prefill_seconds": 0.25,
        "decode_seconds": 2.0,
        "total_seconds": 2.75,
    }
    return Outcome(**{**known, **changes})


def prometheus_name(metric: Metric, stream: Stream) -> str:
    """What /metrics calls a stream; of a histogram, what its buckets, sum and count begin with."""
    name = stream.name.replace(".", "_")
    if metric.unit == "s" and not name.endswith("_seconds"):
        name += "_seconds"
    return name + "_total" if metric.kind == "counter" else name


Samples = dict[str, list[tuple[dict[str, str], float]]]


def samples(telemetry: Telemetry) -> Samples:
    """Every sample of /metrics by name: its labels and value."""
    text, content_type = telemetry.metrics_text()
    assert content_type.startswith("text/plain")
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    """The one sample of that name that has these labels."""
    (found,) = [value for given, value in samples(telemetry).get(name, []) if labels.items() <= given.items()]
    return found
