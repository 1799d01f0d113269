"""Numbers of a model's engine, from the messages it sends anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from core_engine import EngineInfo, EngineReady, FromEngine, IterationOutput, IterationStats, Outcome
from gateway.telemetry.names import FINISHED_REASON_LABEL, MODEL_LABEL

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram

LABEL_SETS = 64  # told apart in one counter
OTHER = "other"

# The word that readers of vllm:request_success know.
_FINISHED_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort"}

Read = Callable[[], Iterable[tuple[float, Mapping[str, Any]]]]


class LabelledTotals:
    """Running totals by label values, at most LABEL_SETS of them; what is beyond counts as OTHER.

    Values come from policies of anybody's making, so nothing but this bounds how many there are.
    """

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self._totals: dict[tuple[str, ...], float] = {}

    def add(self, values: tuple[str, ...], amount: float) -> None:
        """Add to the total of these label values, one for each label."""
        if values not in self._totals and len(self._totals) >= LABEL_SETS:
            values = (OTHER,) * len(self._labels)
        self._totals[values] = self._totals.get(values, 0) + amount

    def read(self) -> Iterable[tuple[float, Mapping[str, Any]]]:
        """(total, labels) of each."""
        return [(total, dict(zip(self._labels, values, strict=True))) for values, total in list(self._totals.items())]


class EngineNumbers:
    """What one model's engine told, as plain numbers that instruments read when somebody collects.

    `reads` has a reader for every metric that isn't a histogram; histograms are recorded to at once.
    `engine_state` answers "ready" while the engine serves: in any other state the gauges of what it
    is doing are 0, whatever its last message said.
    """

    def __init__(self, model: str, engine_state: Callable[[], str], histograms: Mapping[str, Histogram]) -> None:
        self._engine_state = engine_state
        self._histograms = histograms
        self.labels: Mapping[str, str] = {MODEL_LABEL: model}
        self._epoch: int | None = None
        self._info: EngineInfo | None = None
        self._stats = IterationStats(iteration=0)
        self._policy_version = 0
        self._prompt_tokens = self._generation_tokens = self._preemptions = self._idle_rows = self._restarts = 0
        self._prefix_queries = self._prefix_hits = 0
        self._success = LabelledTotals(FINISHED_REASON_LABEL)
        for reason in _FINISHED_REASONS.values():
            self._success.add((reason,), 0)
        self._rejections = LabelledTotals("reason")
        self._shortages = LabelledTotals("cause")
        self._rescues = LabelledTotals("rule")
        self._policy_faults = LabelledTotals("policy")
        self._decisions = LabelledTotals("hook", "policy")
        self._starts = 0
        self._holds = LabelledTotals("policy", "reason")
        self._served = LabelledTotals("tenant")
        self._objectives_met = LabelledTotals("class")
        self._objectives_judged = LabelledTotals("class")
        self._policy_events = LabelledTotals("kind")
        self.reads: Mapping[str, Read] = {**self._gauges(), **self._counters()}

    def observe(self, message: FromEngine) -> None:
        """Take in one message of the engine."""
        if message.epoch != self._epoch:
            self._restarts += self._epoch is not None
            self._epoch = message.epoch
            self._stats = IterationStats(iteration=0)
        if isinstance(message, IterationOutput):
            self._observe_iteration(message)
        elif isinstance(message, EngineReady):
            self._info = message.info
            self._policy_version = message.info.policy_version

    def _observe_iteration(self, message: IterationOutput) -> None:
        self._policy_version = message.policy_version
        for output in message.outputs:
            self._generation_tokens += len(output.token_ids)
        for rejected in message.rejected:
            self._rejections.add((rejected.reason,), 1)
        for outcome in message.finished:
            self._observe_outcome(outcome)
        for event in message.policy_events:
            self._policy_events.add((event.kind,), 1)
        if message.stats is not None:
            self._stats = message.stats
            self._observe_stats(message.stats)

    def _observe_stats(self, stats: IterationStats) -> None:
        self._prompt_tokens += stats.prefill_tokens
        self._preemptions += stats.preemptions
        self._idle_rows += stats.idle_rows
        for cause, count in stats.memory_shortages.items():
            self._shortages.add((cause,), count)
        for rule, count in stats.rescues.items():
            self._rescues.add((rule,), count)
        for policy, count in stats.policy_faults.items():
            self._policy_faults.add((policy,), count)
        for hook_and_policy, seconds in stats.decision_seconds.items():
            hook, _, policy = hook_and_policy.partition("/")
            self._decisions.add((hook, policy), seconds)
        self._starts += stats.starts
        for policy_and_reason, count in stats.held.items():
            policy, _, reason = policy_and_reason.partition(": ")
            self._holds.add((policy, reason), count)
        for tenant, count in stats.served_tokens.items():
            self._served.add((tenant,), count)
        for class_name, (met, judged) in stats.attainment.items():
            self._objectives_met.add((class_name,), met)
            self._objectives_judged.add((class_name,), judged)
        if stats.idle_gap_seconds is not None:
            self._record("idle_gap", stats.idle_gap_seconds)
        num_tokens = stats.prefill_tokens + stats.decode_tokens
        if num_tokens:
            self._record("iteration_tokens", num_tokens)
            self._record("iteration_duration", stats.duration_seconds)
            self._record("prompt_time_share", stats.prefill_time_share)
            self._record("prompt_compute_share", stats.prefill_compute_share)

    def _observe_outcome(self, outcome: Outcome) -> None:
        if reason := _FINISHED_REASONS.get(outcome.finish_reason):
            self._success.add((reason,), 1)
        if outcome.queue_seconds is not None:
            self._prefix_queries += outcome.num_prompt_tokens
            self._prefix_hits += outcome.num_cached_tokens
        for key, seconds in (
            ("queue_time", outcome.queue_seconds),
            ("prefill_time", outcome.prefill_seconds),
            ("decode_time", outcome.decode_seconds),
        ):
            if seconds is not None:
                self._record(key, seconds)

    def _record(self, key: str, value: float) -> None:
        self._histograms[key].record(value, self.labels)

    @property
    def _now(self) -> IterationStats:
        return self._stats if self._engine_state() == "ready" else IterationStats(iteration=0)

    def _gauges(self) -> dict[str, Read]:
        def number(value: Callable[[IterationStats], float]) -> Read:
            return lambda: [(value(self._now), {})]

        return {
            "running": number(lambda now: now.sequences_running),
            "waiting": number(lambda now: now.sequences_waiting),
            "waiting_tokens": number(lambda now: now.waiting_tokens),
            "kv_usage": number(lambda now: _share(now.blocks_total - now.blocks_free, now)),
            "kv_cached_idle": number(lambda now: _share(now.blocks_cached_idle, now)),
            "kv_waste": number(lambda now: now.waste_tokens),
            "cost_model_error": number(lambda now: now.cost_model_error),
            "policy_version": lambda: [(self._policy_version, {})],
            "ready": lambda: [(int(self._engine_state() == "ready"), {})],
            "jain": lambda: [(_jain([total for total, _ in self._served.read()]), {})],
            "longest_wait": lambda: [
                (wait, {"class": name}) for name, wait in self._now.longest_wait_iterations.items()
            ],
            "cache_config": self._cache_config,
            "policies": self._policies,
        }

    def _counters(self) -> dict[str, Read]:
        return {
            "prompt_tokens": lambda: [(self._prompt_tokens, {})],
            "generation_tokens": lambda: [(self._generation_tokens, {})],
            "prefix_queries": lambda: [(self._prefix_queries, {})],
            "prefix_hits": lambda: [(self._prefix_hits, {})],
            "preemptions": lambda: [(self._preemptions, {})],
            "idle_rows": lambda: [(self._idle_rows, {})],
            "restarts": lambda: [(self._restarts, {})],
            "starts": lambda: [(self._starts, {})],
            "success": self._success.read,
            "rejections": self._rejections.read,
            "shortages": self._shortages.read,
            "rescues": self._rescues.read,
            "policy_faults": self._policy_faults.read,
            "decisions": self._decisions.read,
            "holds": self._holds.read,
            "served": self._served.read,
            "objectives_met": self._objectives_met.read,
            "objectives_judged": self._objectives_judged.read,
            "policy_events": self._policy_events.read,
        }

    def _cache_config(self) -> Iterable[tuple[float, Mapping[str, Any]]]:
        if self._info is None:
            return []
        info = self._info
        return [
            (
                1,
                {
                    "block_size": str(info.block_size),
                    "num_gpu_blocks": str(info.num_blocks),
                    "cache_dtype": info.dtype,
                    "kv_bytes_per_token": str(info.kv_bytes_per_token),
                },
            )
        ]

    def _policies(self) -> Iterable[tuple[float, Mapping[str, Any]]]:
        hooks = self._info.policies if self._info is not None else {}
        return [(1, {"hook": hook, "policy": policy}) for hook, policies in hooks.items() for policy in policies]


def _share(blocks: int, stats: IterationStats) -> float:
    return blocks / stats.blocks_total if stats.blocks_total else 0.0


def _jain(shares: list[float]) -> float:
    """(sum of x)^2 / (n * sum of x^2), of Jain, Chiu and Hawe: 1 where all are equal, 1/n where one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
