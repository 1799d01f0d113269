"""What an iteration costs outside the model, with the default policies and with gates."""

from __future__ import annotations

import platform
import statistics
import time
from collections import Counter
from typing import Any

import msgspec

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.request import Request, SamplingParams

_BLOCK_SIZE = 32
_PROMPT_TOKENS = 128
_VOCAB_SIZE = 32_000
_WARM_UP = 30  # iterations, after those in which all board


class Scenario(msgspec.Struct, frozen=True):
    """A state that is kept up while iterations are measured.

    `decode`: every running sequence generates, nobody comes or goes. `mixed`: on average one sequence an
    iteration ends, and the one that takes its seat brings a prompt of 128 tokens. `held`: as decode, with seats
    free, of which gates let those who wait take none. `policies` are asked before the defaults.
    """

    kind: str
    running: int
    waiting: int
    limit_seconds: float | None = None  # what it may cost
    policies: tuple[str, ...] = ()


_GATES = ("prefill_share", "stretch", "queue_gate")


SCENARIOS = (
    Scenario("decode", 16, 0),
    Scenario("decode", 32, 0),
    Scenario("decode", 64, 0, limit_seconds=300e-6),
    Scenario("decode", 128, 0),
    Scenario("decode", 256, 0),
    Scenario("decode", 512, 0),
    Scenario("decode", 256, 1000, limit_seconds=1200e-6),
    Scenario("mixed", 64, 0, limit_seconds=300e-6),
    Scenario("mixed", 256, 1000, limit_seconds=1200e-6),
    Scenario("decode", 256, 1000, limit_seconds=500e-6, policies=_GATES),
    Scenario("held", 256, 1000, limit_seconds=500e-6, policies=(*_GATES[:2], "queue_gate:max_running=256")),
)


class NullExecutor:
    """Answers every batch at once with the same token, and measures the time that is its own."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.own_seconds = 0.0

    def submit(self, batch: Batch) -> object:
        """Nothing to start."""
        return batch

    def collect(self, handle: object) -> BatchResult:
        """Token 1 for every row that samples."""
        started = time.perf_counter()
        assert isinstance(handle, Batch)
        result = BatchResult([1] * len(handle.sample_rows))
        self.own_seconds += time.perf_counter() - started
        return result


class _Load:
    """An engine kept in the state of a scenario."""

    def __init__(self, scenario: Scenario, iterations: int) -> None:
        self._scenario = scenario
        most_boarding = 4 * scenario.running  # iterations: gates let fewer board than the two or more that fit
        whole_run = most_boarding + _WARM_UP + iterations
        self._longest = 2 * scenario.running if scenario.kind == "mixed" else whole_run  # output tokens
        blocks_each = -(-(_PROMPT_TOKENS + self._longest) // _BLOCK_SIZE) + 2
        self._executor = NullExecutor(
            ModelSpec(
                name="null",
                architecture="null",
                dtype="float32",
                device="none",
                vocab_size=_VOCAB_SIZE,
                max_model_len=1 << 20,
                num_blocks=blocks_each * (scenario.running + 1),
                block_size=_BLOCK_SIZE,
                kv_bytes_per_token=1,
            )
        )
        config = EngineConfig(
            block_size=_BLOCK_SIZE,
            token_limit=max(512, 2 * scenario.running + 2 * _PROMPT_TOKENS),
            sequence_limit=scenario.running * (2 if scenario.kind == "held" else 1),
            policies=scenario.policies,
            seed=0,
        )
        self._engine = Engine(config, self._executor)
        self._submitted = 0
        while len(self._engine.state.running) < scenario.running and self._engine.state.iteration < most_boarding:
            self.step()
        for _ in range(_WARM_UP):
            self.step()

    def step(self) -> tuple[float, dict[str, float]]:
        """Seconds of one iteration less the executor's own, and those of each policy's decisions."""
        self._fill()
        executors = self._executor.own_seconds
        started = time.perf_counter()
        output = self._engine.step()
        seconds = time.perf_counter() - started
        assert output.stats is not None
        return seconds - (self._executor.own_seconds - executors), output.stats.decision_seconds

    def _fill(self) -> None:
        state, scenario = self._engine.state, self._scenario
        wanted = max(scenario.waiting, scenario.running - len(state.running))
        for _ in range(wanted - state.num_waiting):
            self._submitted += 1
            output = 1 + self._submitted * 37 % self._longest if scenario.kind == "mixed" else self._longest
            self._engine.submit(
                Request(
                    id=str(self._submitted),
                    model="null",
                    prompt_token_ids=[self._submitted * 31 % _VOCAB_SIZE] * _PROMPT_TOKENS,
                    sampling=SamplingParams(temperature=0, max_tokens=output, ignore_eos=True),
                )
            )


def run_scheduler_bench(iterations: int = 500, scenarios: tuple[Scenario, ...] = SCENARIOS) -> dict[str, Any]:
    """Measure every scenario over that many iterations; the result is ready for JSON.

    All times are seconds of wall clock, less the executor's own, so a busy machine makes them longer.
    """
    rows = [_measure(scenario, iterations) for scenario in scenarios]
    return {"bench": "scheduler", "python": platform.python_version(), "iterations": iterations, "scenarios": rows}


def render_scheduler_bench(report: dict[str, Any]) -> str:
    """The report as a table for people, in microseconds."""
    lines = [
        f"Cost of one iteration outside the model, Python {report['python']}, µs",
        f"{'state':<8}{'running':>8}{'waiting':>8}{'median':>9}{'p90':>9}{'a sequence':>12}{'limit':>8}",
    ]
    for row in report["scenarios"]:
        limit = "" if row["limit_seconds"] is None else f"{row['limit_seconds'] * 1e6:.0f}"
        verdict = "" if row["met"] is None else "met" if row["met"] else "missed"
        policies = " ".join(row["policies"]) or "defaults"
        lines.append(
            f"{row['kind']:<8}{row['running']:>8}{row['waiting']:>8}{row['median_seconds'] * 1e6:>9.0f}"
            f"{row['p90_seconds'] * 1e6:>9.0f}{row['median_seconds'] / row['running'] * 1e6:>12.2f}{limit:>8}"
            f"  {verdict:<6}  {policies}"
        )
    return "\n".join(lines)


def _measure(scenario: Scenario, iterations: int) -> dict[str, Any]:
    load = _Load(scenario, iterations)
    times: list[float] = []
    decisions: Counter[str] = Counter()
    for _ in range(iterations):
        seconds, decision_seconds = load.step()
        times.append(seconds)
        decisions.update(decision_seconds)
    median = statistics.median(times)
    return {
        **msgspec.to_builtins(scenario),
        "median_seconds": median,
        "p90_seconds": sorted(times)[int(0.9 * len(times))],
        "mean_decision_seconds": {key: total / iterations for key, total in decisions.most_common()},
        "met": None if scenario.limit_seconds is None else median <= scenario.limit_seconds,
    }
