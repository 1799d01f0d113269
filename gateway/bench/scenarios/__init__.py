"""What each policy must show, over HTTP, on a real model: one file a scenario."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from typing import Any

# name -> what a person reads of it
SCENARIOS = {
    "swaps": "20 swaps under 32 streams: no request lost, equal texts, and a faulty policy rolled back",
    "fairness": "a light tenant beside one with ten times its load, under fair_share and fcfs, at 80 % of capacity",
    "priority": "an interactive request into a flood of batch ones; a long batch request under an endless flood",
    "memory": "a pool for 4 of 32 sequences, with and without kv_feedback",
    "stretch": "a 6,000-token prompt among 16 chat streams, by gate and planner",
    "prefill_share": "the source's workload at 80 % of capacity, without a gate, with prefill_share and with stretch",
    "profiles": "chats, two long prompts and a batch of 24 at once, under the defaults and each profile",
}

Scenario = Callable[[list[str]], Coroutine[Any, Any, dict[str, Any]]]


def load(name: str) -> Scenario:
    """The scenario's `run`: takes further options of `jitney serve`, returns its figures."""
    run: Scenario = importlib.import_module(f"gateway.bench.scenarios.{name}").run
    return run
